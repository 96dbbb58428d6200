"""Buckets of input length, and what padding would cost with and without them."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from batchrun.records import LONG, Bucket

PADDED_BATCH = 8
"""Sequences in a batch of the padded engine that the padding shares are reckoned for."""
SORT_WINDOW = 4096
"""Documents that are put in order of length together, inside one bucket."""

Lengths = npt.NDArray[np.int64]


def make_buckets(edges: Sequence[int]) -> list[Bucket]:
    """`[1024, 8192]` gives 0–1024, 1024–8192, 8192 upwards, and the documents that do not fit the context."""
    ranges = zip([0, *edges], [*edges, None], strict=True)
    return [*(Bucket(lower=lower, upper=upper) for lower, upper in ranges), LONG]


def assign(edges: Sequence[int], lengths: Lengths) -> npt.NDArray[np.int64]:
    """The number of the bucket of each length in tokens."""
    return np.searchsorted(np.asarray(edges), lengths, side="right")


def labels(edges: Sequence[int], lengths: Lengths) -> list[str]:
    """The label of the bucket of each length in tokens, for people: `1K–8K`."""
    names = [bucket.label for bucket in make_buckets(edges)]
    return [names[number] for number in assign(edges, lengths).tolist()]


class Padding:
    """Shares of padding tokens among all tokens of a padded engine, reckoned in one pass over lengths.

    Fed with the lengths of the documents to run, in input order.
    """

    def __init__(self, edges: Sequence[int]) -> None:
        self._edges = edges
        self._tokens = 0
        self._fifo = 0
        self._bucketed = 0

    def add(self, lengths: Lengths) -> None:
        self._tokens += int(lengths.sum())
        self._fifo += _padded(lengths)
        bucket_of = assign(self._edges, lengths)
        for bucket in np.unique(bucket_of):
            inside = lengths[bucket_of == bucket]
            windows = (inside[start : start + SORT_WINDOW] for start in range(0, len(inside), SORT_WINDOW))
            self._bucketed += _padded_sum(np.sort(window) for window in windows)

    @property
    def share_without_buckets(self) -> float:
        return 1 - self._tokens / self._fifo if self._fifo else 0.0

    @property
    def share_with_buckets(self) -> float:
        return 1 - self._tokens / self._bucketed if self._bucketed else 0.0


def _padded_sum(windows: Iterable[Lengths]) -> int:
    return sum(_padded(window) for window in windows)


def _padded(lengths: Lengths) -> int:
    """Tokens computed where each batch is padded to its longest; a last short batch counts its rows only."""
    full = len(lengths) // PADDED_BATCH * PADDED_BATCH
    whole = lengths[:full].reshape(-1, PADDED_BATCH).max(axis=1, initial=0).sum() * PADDED_BATCH
    rest = lengths[full:]
    return int(whole + (rest.max() * len(rest) if len(rest) else 0))
