"""Rows gathered into batches of bounded size."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from batchrun.errors import CorpusError

T = TypeVar("T")

BATCH_BYTES = 8 << 20
BATCH_ROWS = 8192

MAX_ROW_BYTES = 128 << 20
"""Of one line, field or document: a longer one fails alone, so that memory stays bounded."""


def bounded(rows: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Batches of BATCH_ROWS rows, or of BATCH_BYTES and the row that passed them. The rows before a
    CorpusError are given before it is raised.
    """
    batch: list[T] = []
    size = 0
    try:
        for row in rows:
            batch.append(row)
            size += size_of(row)
            if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
    except CorpusError:
        if batch:
            yield batch
        raise
    if batch:
        yield batch
