"""Token ids of many texts in two flat arrays."""

from hypothesis import given
from hypothesis import strategies as st

from batchrun.prompts.token_batch import TokenBatch, from_buffers, from_lists, interleave, join

rows = st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=4), max_size=6)


def to_lists(batch: TokenBatch) -> list[list[int]]:
    assert len(batch.offsets) == len(batch.lengths) + 1
    return [
        batch.ids[start : start + length].tolist()
        for start, length in zip(batch.offsets[:-1], batch.lengths, strict=True)
    ]


@given(rows=rows)
def test_lists_and_buffers(rows: list[list[int]]) -> None:
    """What goes in comes out, by way of Python lists or of raw buffers."""
    batch = from_lists(rows)
    assert rows == to_lists(batch)
    assert rows == to_lists(from_buffers(batch.ids.tobytes(), batch.offsets.tobytes()))
    assert [len(row) for row in rows] == batch.lengths.tolist()


@given(parts=st.lists(rows, min_size=1, max_size=4))
def test_join(parts: list[list[list[int]]]) -> None:
    """All texts, in order."""
    assert [row for part in parts for row in part] == to_lists(join([from_lists(part) for part in parts]))


@given(marked=st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 9), max_size=3)), max_size=8))
def test_interleave(marked: list[tuple[bool, list[int]]]) -> None:
    """Two batches put back into the order they were taken from."""
    first = from_lists([row for is_first, row in marked if is_first])
    second = from_lists([row for is_first, row in marked if not is_first])
    is_first = from_lists([[mark] for mark, _ in marked]).ids.astype(bool)
    assert [row for _, row in marked] == to_lists(interleave(first, second, is_first))
