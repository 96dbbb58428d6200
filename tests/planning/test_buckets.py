"""Buckets are half-open ranges of tokens; padding is what a padded engine would compute for nothing."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.planning import buckets
from batchrun.planning.buckets import Padding, assign, make_buckets
from batchrun.records import LONG, Bucket


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ((), [(0, None)]),
        ((10,), [(0, 10), (10, None)]),
        ((1024, 8192, 32768), [(0, 1024), (1024, 8192), (8192, 32768), (32768, None)]),
    ],
)
def test_buckets_cover_all_lengths(edges: tuple[int, ...], expected: list[tuple[int, int | None]]) -> None:
    """From 0 to no end, one beginning where the other ends."""
    assert [Bucket(lower=lower, upper=upper) for lower, upper in expected] == make_buckets(edges)[:-1]
    assert LONG == make_buckets(edges)[-1]


@pytest.mark.parametrize(
    ("length", "bucket"), [(0, 0), (1, 0), (15, 0), (16, 1), (17, 1), (31, 1), (32, 2), (10**9, 2)]
)
def test_an_edge_belongs_to_the_bucket_above(length: int, bucket: int) -> None:
    """Half-open: lower <= tokens < upper."""
    edges = (16, 32)
    assert [bucket] == assign(edges, np.array([length])).tolist()
    found = make_buckets(edges)[bucket]
    assert found.lower <= length
    assert found.upper is None or length < found.upper


def test_without_edges_there_is_one_bucket() -> None:
    """All lengths are alike."""
    assert assign((), np.array([0, 5, 10**6])).tolist() == [0, 0, 0]


def padded(lengths: list[int]) -> int:
    """By definition: batches of eight in a row, each row as long as the longest of its batch."""
    batches = [lengths[start : start + 8] for start in range(0, len(lengths), 8)]
    return sum(len(batch) * max(batch) for batch in batches)


@given(
    lengths=st.lists(st.integers(1, 200), max_size=60),
    edges=st.sets(st.integers(1, 150), max_size=3).map(sorted),
    window=st.sampled_from([8, 16, 4096]),
)
def test_padding_is_what_the_definition_says(lengths: list[int], edges: list[int], window: int) -> None:
    """Without buckets in input order; with them sorted by length inside windows of a bucket."""
    bounds = list(zip([0, *edges], [*edges, 10**9], strict=True))
    inside = [[length for length in lengths if lower <= length < upper] for lower, upper in bounds]
    bucketed = sum(
        padded(sorted(some[start : start + window]))
        for some in inside
        for start in range(0, len(some), window)
    )
    with patch.object(buckets, "SORT_WINDOW", window):
        padding = Padding(edges)
        padding.add(np.array(lengths, np.int64))
    tokens = sum(lengths)
    assert (1 - tokens / padded(lengths) if lengths else 0.0) == pytest.approx(padding.share_without_buckets)
    assert (1 - tokens / bucketed if lengths else 0.0) == pytest.approx(padding.share_with_buckets)


def test_padding_of_several_portions_adds_up() -> None:
    """Portions of whole batches give the same as all at once."""
    lengths = np.random.default_rng(0).integers(1, 100, 64)
    whole, portions = Padding(()), Padding(())
    whole.add(lengths)
    for start in range(0, 64, 16):
        portions.add(lengths[start : start + 16])
    assert whole.share_without_buckets == portions.share_without_buckets > 0


def test_equal_lengths_need_no_padding() -> None:
    """Whatever the buckets."""
    padding = Padding((16,))
    padding.add(np.full(100, 20, np.int64))
    assert (padding.share_without_buckets, padding.share_with_buckets) == (0.0, 0.0)
