"""How long outputs will be, learnt from those of the same job that are finished."""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

ENOUGH = 64
"""Finished outputs of a bucket from which it is predicted by them; before, an output counts as its cap."""
WINDOW = 1024
"""Of the last finished outputs: a job that changes its documents changes its prediction."""
REFRESH = 32
QUANTILE = 0.75
"""Of the lengths of finished outputs. Lower, and sequences are preempted; higher, and the cache stands empty."""


class OutputPrediction:
    """Quantiles of output lengths by bucket of input length. For one thread."""

    def __init__(self, edges: Sequence[int], quantile: float = QUANTILE) -> None:
        self._edges = edges
        self._quantile = quantile
        self._finished: list[deque[int]] = [deque(maxlen=WINDOW) for _ in range(len(edges) + 1)]
        self._sorted: list[list[int]] = [[] for _ in range(len(edges) + 1)]
        self._news = [0] * (len(edges) + 1)

    def observe(self, input_tokens: int, output_tokens: int) -> None:
        """A whole output is finished."""
        bucket = bisect_right(self._edges, input_tokens)
        self._finished[bucket].append(output_tokens)
        self._news[bucket] += 1
        if self._news[bucket] >= REFRESH:
            self._news[bucket] = 0
            self._sorted[bucket] = sorted(self._finished[bucket])

    def predict(self, input_tokens: int, cap: int, so_far: int = 0) -> int:
        """Tokens of the whole output, more than `so_far`, at most `cap`: the quantile of those that came as far."""
        lengths = self._sorted[bisect_right(self._edges, input_tokens)]
        longer = bisect_right(lengths, so_far)
        if len(lengths) < ENOUGH or longer == len(lengths):
            return cap
        return min(cap, lengths[longer + int((len(lengths) - longer) * self._quantile)])
