"""The order of the spool: a walk of the prefix tree."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from batchrun.planning import order
from batchrun.planning.spool import SCHEMA, document_rows


def rows_of(documents: Sequence[Sequence[int]], values: Sequence[list[str]] | None = None) -> pa.RecordBatch:
    size = len(documents)
    numbers = pa.array(range(size), pa.uint64())
    ids = pa.array([np.array(one, "<u4").tobytes() for one in documents], pa.large_binary())
    named = (
        pa.nulls(size, SCHEMA.field("values").type)
        if values is None
        else pa.array(values, SCHEMA.field("values").type)
    )
    rest = [pa.nulls(size, field.type) for field in list(SCHEMA)[4:]]
    return pa.record_batch([numbers, numbers, ids, named, *rest], schema=SCHEMA)


def tokens_of(batches: Iterator[pa.RecordBatch]) -> list[list[int]]:
    return [document.token_ids for batch in batches for document in document_rows(batch)]


def test_rows_are_sorted_by_their_tokens_as_numbers() -> None:
    """Not by their bytes in memory: 256 comes after 2; a beginning comes before what goes on from it."""
    rows = rows_of([[256, 1], [2, 70_000], [], [2], [256], [2, 300]])
    expected = [[], [2], [2, 300], [2, 70_000], [256], [256, 1]]
    assert expected == tokens_of(iter(order.in_order(pa.Table.from_batches([rows])).to_batches()))


def test_the_columns_of_the_prompt_come_first() -> None:
    """They stand before the document: documents with other values share no beginning."""
    rows = rows_of([[5], [4], [3]], [["b"], ["a", "x"], ["a"]])
    expected = [[3], [4], [5]]
    assert expected == tokens_of(iter(order.in_order(pa.Table.from_batches([rows])).to_batches()))


def test_sorted_streams_are_merged_a_batch_of_each_at_a_time() -> None:
    """Wherever batches end, and where a stream is empty or ends early."""
    numbers = np.random.default_rng(1).permutation(300).tolist()
    held = 0

    def stream(mine: list[int], size: int) -> Iterator[pa.RecordBatch]:
        nonlocal held
        for start in range(0, len(mine), size):
            held += 1
            yield rows_of([[number] for number in mine[start : start + size]])

    streams = [stream(sorted(numbers[:200]), 7), stream(sorted(numbers[200:]), 60), stream([], 1)]
    batches = order.merged(streams)
    first = next(batches)
    assert 2 == held
    assert [[number] for number in range(300)] == tokens_of(iter([first, *batches]))


def test_a_slice_of_a_batch_has_the_keys_of_its_rows() -> None:
    """The bytes are found from the slice's own offsets."""
    rows = rows_of([[1], [2, 3], [4]]).slice(1)
    assert [b"\0\0\0\2\0\0\0\3", b"\0\0\0\4"] == order.sort_keys(rows).to_pylist()


def test_a_merge_of_what_is_not_sorted_loses_nothing() -> None:
    """Of a spool of another version, say: the order is worse, and every row is there."""
    streams = [iter([rows_of([[9], [9], [9], [1]])]), iter([rows_of([[8], [7], [5], [3]])])]
    merged = tokens_of(order.merged(streams))
    assert [[1], [3], [5], [7], [8], [9], [9], [9]] == sorted(merged)
