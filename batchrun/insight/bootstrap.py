"""Whether two samples differ by more than noise: a bootstrap of both, with intervals of 95 %.

Requests that run side by side share their delays, so that what is drawn again and again is stretches of requests that
ended one after another, not single ones. A draw is the number of times that each stretch is in it (Poisson of mean 1:
Hanley and MacGibbon 2006), so that all draws are one product of matrices, whatever the size of the samples: under a
second for two of 20,000. What a machine does differently from one run to the next, such as a busy neighbour, is in no single run:
compare two runs of one setting to see it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import erfc, inf, sqrt

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Draws = Callable[[Floats], Floats]
"""From weights of `(draws, stretches)`, the statistic of each draw."""
Statistic = Callable[[Floats, Integers], Draws]
"""Of a sample and the stretch of each of its values, from 0."""

NUM_DRAWS = 2000
SEED = 20_000_303
FEWEST = 8
"""Values of a sample from which a difference is judged."""
FEWEST_STRETCHES, MOST_STRETCHES = 10, 500
GRID = 400
"""Values of a sample, around a quantile, that its draws may take."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Of 95 %."""

    low: float
    high: float

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True, kw_only=True)
class Difference:
    """B less A. `percent`: the same in percent of A, None where A may be 0. `chance`: of a difference as large, either
    way, where there is none.
    """

    of_a: Interval
    of_b: Interval
    difference: Interval
    percent: Interval | None
    chance: float


def mean(values: Floats, stretches: Integers) -> Draws:
    """Of the values."""
    sums, counts = np.bincount(stretches, values), np.bincount(stretches)
    return lambda weights: (weights @ sums) / (weights @ counts)


def ratio(values: Floats, stretches: Integers) -> Draws:
    """Of values in two columns: the sum of the first by that of the second, such as tokens a second."""
    above, below = (np.bincount(stretches, column) for column in values.T)
    return lambda weights: (weights @ above) / np.maximum(weights @ below, 1e-12)


def quantile(share: float) -> Statistic:
    """The smallest value with at least this share of the values up to it."""

    def of(values: Floats, stretches: Integers) -> Draws:
        num_stretches = int(stretches[-1]) + 1
        grid = _around(np.sort(values), share, num_stretches)
        width = len(grid) + 1
        cells = stretches * width + np.searchsorted(grid, values)
        up_to = np.cumsum(
            np.bincount(cells, minlength=num_stretches * width).reshape(-1, width), axis=1
        ).astype(np.float64)

        def draws(weights: Floats) -> Floats:
            counts = weights @ up_to
            places = (counts < share * counts[:, -1:] - 1e-9).sum(axis=1)
            found: Floats = grid[np.minimum(places, len(grid) - 1)]
            return found

        return draws

    return of


def _around(ordered: Floats, share: float, num_stretches: int) -> Floats:
    """Values within six standard errors of the quantile, and itself."""
    reach = 6 * (share * (1 - share) / num_stretches) ** 0.5
    last = len(ordered) - 1
    low, high = (
        int(np.clip(np.ceil(len(ordered) * at) - 1, 0, last)) for at in (share - reach, share + reach)
    )
    middle = max(0, int(np.ceil(len(ordered) * share - 1e-9)) - 1)
    return np.unique(ordered[np.append(np.linspace(low, high, GRID).astype(np.int64), middle)])


def plain(statistic: Statistic, values: Floats) -> float:
    """Of the sample itself."""
    return float(statistic(values, np.zeros(len(values), np.int64))(np.ones((1, 1)))[0])


def compare(
    statistic: Statistic, a: Floats, b: Floats, *, is_paired: bool = False, together: int = 1
) -> Difference:
    """Two samples, each in the order in which its requests ended; `together` of them ran side by side. Of pairs,
    which stand in one order, both values are drawn together. The same samples give the same answer. From fewer than
    FEWEST values of each nothing should be judged.
    """
    seeds = [SEED, SEED if is_paired else SEED + 1]
    drawn_a, drawn_b = (
        _draw(statistic, values, together, seed) for values, seed in zip((a, b), seeds, strict=True)
    )
    by = drawn_b - drawn_a
    return Difference(
        of_a=_interval(drawn_a),
        of_b=_interval(drawn_b),
        difference=_interval(by),
        percent=_interval(100 * by / drawn_a) if drawn_a.min() > 0 else None,
        chance=_chance(by),
    )


def _chance(by: Floats) -> float:
    """By the share of the draws on the rarer side of 0; where there is none, no more than by a normal distribution."""
    least = min(int((by <= 0).sum()), int((by >= 0).sum()))
    if least:
        return min(1.0, 2 * least / NUM_DRAWS)
    spread = float(by.std())
    z = abs(float(by.mean())) / spread if spread else inf
    return min(1 / NUM_DRAWS, erfc(z / sqrt(2)))


def _draw(statistic: Statistic, values: Floats, together: int, seed: int) -> Floats:
    """A stretch is as long as so many ran together, longer where there would be more than MOST_STRETCHES, shorter
    where there would be less than FEWEST_STRETCHES.
    """
    size = len(values)
    length = max(1, min(together, size // FEWEST_STRETCHES), -(-size // MOST_STRETCHES))
    stretches = np.arange(size) // length
    number = int(stretches[-1]) + 1
    return statistic(values, stretches)(_weights(number, seed))


@lru_cache(maxsize=2)
def _weights(num_stretches: int, seed: int) -> Floats:
    weights = np.random.default_rng(seed).poisson(1.0, (NUM_DRAWS, num_stretches)).astype(np.float64)
    weights[weights.sum(axis=1) == 0] = 1.0
    return weights


def _interval(draws: Floats) -> Interval:
    low, high = np.percentile(draws, [2.5, 97.5]).tolist()
    return Interval(low=low, high=high)
