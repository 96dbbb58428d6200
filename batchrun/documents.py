"""What reading gives and planning takes: a batch of rows of one file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from batchrun.records import ErrorType, RowStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A row that is decided at reading, before any model is asked."""

    status: RowStatus
    error_type: ErrorType
    error: str


@dataclass(frozen=True, kw_only=True)
class DocumentBatch:
    """Rows `first_row` and following of source number `source`; or, where `source` has a number for each
    row, rows that are each row 0 of a source of their own.

    `texts` has None exactly where `verdicts` has an entry. `flags` are of single rows. `carried` holds
    `doc_id` and the kept columns of the same rows, in Arrow; `variables` the columns named in the prompt, as
    strings.
    """

    source: int | tuple[int, ...]
    first_row: int
    texts: list[str | None]
    carried: pa.RecordBatch
    verdicts: Mapping[int, Verdict] = field(default_factory=dict)
    flags: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    variables: pa.RecordBatch | None = None

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def source_numbers(self) -> npt.NDArray[np.int32]:
        """Of every row the number of its source."""
        return np.full(len(self), self.source, np.int32)

    @property
    def row_numbers(self) -> npt.NDArray[np.int64]:
        """Of every row its number in its source."""
        if isinstance(self.source, tuple):
            return np.zeros(len(self), np.int64)
        return np.arange(self.first_row, self.first_row + len(self), dtype=np.int64)

    def one(self, place: int) -> "DocumentBatch":
        """A row by itself."""
        return DocumentBatch(
            source=int(self.source_numbers[place]),
            first_row=int(self.row_numbers[place]),
            texts=self.texts[place : place + 1],
            carried=self.carried.slice(place, 1),
            verdicts={0: self.verdicts[place]} if place in self.verdicts else {},
            flags={0: self.flags[place]} if place in self.flags else {},
            variables=None if self.variables is None else self.variables.slice(place, 1),
        )

    def head(self, num_rows: int) -> "DocumentBatch":
        """The first rows of the batch."""
        return DocumentBatch(
            source=self.source[:num_rows] if isinstance(self.source, tuple) else self.source,
            first_row=self.first_row,
            texts=self.texts[:num_rows],
            carried=self.carried.slice(0, num_rows),
            verdicts={row: verdict for row, verdict in self.verdicts.items() if row < num_rows},
            flags={row: flags for row, flags in self.flags.items() if row < num_rows},
            variables=None if self.variables is None else self.variables.slice(0, num_rows),
        )


def plain_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Python values of a column, None for null. A value that Python has no type for (nanoseconds in a
    struct, text that is not UTF-8, an unknown time zone) is given as it prints.
    """
    try:
        return list(column.to_pylist())
    except _NO_PYTHON_VALUE:
        return [_plain_value(column, place) for place in range(len(column))]


_NO_PYTHON_VALUE = (ValueError, LookupError, OverflowError)


def _plain_value(column: pa.Array | pa.ChunkedArray, place: int) -> Any:
    try:
        return column[place].as_py()
    except _NO_PYTHON_VALUE:
        return column.slice(place, 1).to_string()


OUTPUT_COLUMNS = (
    "source",
    "row",
    "doc_id",
    "summary",
    "status",
    "error_type",
    "error",
    "finish_reason",
    "flags",
    "input_tokens",
    "output_tokens",
    "kept_tokens",
    "num_parts",
    "input_hash",
    "job_id",
    "seed",
    "engine",
)
"""The output's own columns, in order: a column of the corpus can not be kept under these names."""

EMPTY = Verdict(
    status=RowStatus.SKIPPED, error_type=ErrorType.EMPTY_TEXT, error="the text is empty, blank or null"
)
