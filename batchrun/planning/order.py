"""The order of work: documents that begin alike stand together, so that the engine reads what they share once.

Rows of the spool are sorted by what stands in their prompts, first the columns' values, then the tokens of the
document: in the order of their bytes, which is the order in which a prefix tree is walked. Each part of the spool
is sorted by itself, when it is full, and what is read of several parts is merged.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Rows: TypeAlias = pa.RecordBatch | pa.Table
Key: TypeAlias = Callable[[Rows], pa.Array]
"""Of each row what sorts it."""


def sort_keys(rows: Rows) -> pa.LargeBinaryArray:
    """Of each row of the spool the bytes that sort it: token ids as big-endian numbers."""
    keys = _big_endian(_one_array(rows["token_ids"]))
    values = _one_array(rows["values"])
    if values.null_count == len(values):
        return keys
    joined = pc.binary_join(values, "\0").cast(pa.large_binary())
    return pc.binary_join_element_wise(pc.fill_null(joined, b""), keys, pa.scalar(b"\0\0", pa.large_binary()))


def ordinals(rows: Rows) -> pa.Array:
    """Of rows that are to run their places in the input."""
    return _one_array(rows["ordinal"])


def places_in_order(rows: Rows, key: Key = sort_keys) -> pa.Array:
    """The numbers of the rows, sorted."""
    return pc.sort_indices(key(rows))


def in_order(rows: pa.Table, key: Key = sort_keys) -> pa.Table:
    """The rows of a part, sorted. One alone is not copied: it may be as large as a row can be."""
    return rows.take(places_in_order(rows, key)) if rows.num_rows > 1 else rows


def merged(streams: Sequence[Iterator[pa.RecordBatch]], key: Key = sort_keys) -> Iterator[pa.RecordBatch]:
    """Batches of sorted rows, as one sorted series of batches; one batch of each stream is held at a time."""
    heads = [head for stream in streams if (head := _Head(stream, key)).advance()]
    while heads:
        if len(heads) == 1:
            yield heads[0].rest()
        else:
            end = min(head.last for head in heads)
            rows = pa.Table.from_batches([head.up_to(end) for head in heads])
            [batch] = in_order(rows, key).combine_chunks().to_batches()
            yield batch
        heads = [head for head in heads if head.has_rows or head.advance()]


class _Head:
    """The batch of a stream that is being merged, from the first `advance` on."""

    _batch: pa.RecordBatch
    _start: int

    def __init__(self, stream: Iterator[pa.RecordBatch], key: Key) -> None:
        self._stream = stream
        self._key = key
        self._made_keys: pa.Array | None = None

    def advance(self) -> bool:
        """Go to the next batch with rows; False at the end of the stream."""
        for batch in self._stream:
            if batch.num_rows:
                self._batch, self._made_keys, self._start = batch, None, 0
                return True
        return False

    @property
    def has_rows(self) -> bool:
        return self._start < int(self._batch.num_rows)

    @property
    def _keys(self) -> pa.Array:
        """Made when they are asked for: a stream that is alone needs no copy of its tokens."""
        if self._made_keys is None:
            self._made_keys = self._key(self._batch)
        return self._made_keys

    @property
    def last(self) -> Any:
        return self._keys[len(self._keys) - 1].as_py()

    def rest(self) -> pa.RecordBatch:
        start, self._start = self._start, self._batch.num_rows
        return self._batch.slice(start)

    def up_to(self, end: Any) -> pa.RecordBatch:
        """The rows that are not behind `end`; all where the last is not, so that a merge comes to its end even where
        a stream is not sorted.
        """
        if self.last <= end:
            return self.rest()
        low, high = self._start, int(self._batch.num_rows)
        while low < high:
            middle = (low + high) // 2
            if self._keys[middle].as_py() <= end:
                low = middle + 1
            else:
                high = middle
        start, self._start = self._start, low
        return self._batch.slice(start, low - start)


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _big_endian(token_ids: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """uint32 numbers, little-endian to big-endian."""
    _, offsets, data = token_ids.buffers()
    if data is None:
        return token_ids
    numbers = np.frombuffer(data, "<u4", count=data.size // 4).byteswap()
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(token_ids), [None, offsets, pa.py_buffer(numbers)], offset=token_ids.offset
    )
