"""Whether two samples differ by more than noise: a bootstrap of both, with intervals of 95 %.

Requests that run side by side share their delays, so that what is drawn again and again is stretches of them, not
single ones. A draw is the number of times that each stretch is in it (Poisson of mean 1: Hanley and MacGibbon 2006), so
that all draws are one product of matrices, whatever the size of the samples: under a second for two of 20,000. The draws
give standard errors alone; what follows from these is by Student's t, with one degree of freedom less than there are
stretches, as in the method of batch means (Schmeiser 1982). Where nothing differs a figure is then called different at
5 % in 1 to 7 of 100 comparisons (tests/insight/test_bootstrap.py counts them). What a machine does differently from one
run to the next, such as a busy neighbour, is in no single run: compare two runs of one setting to see it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import expm1, isfinite, log, sqrt

import numpy as np

from batchrun.insight.stretches import Floats, Integers, crossed, effective, singles
from batchrun.insight.student import two_sided, width

Draws = Callable[[Floats], Floats]
"""From weights of `(draws, stretches)`, the statistic of each draw."""
Statistic = Callable[[Floats, Integers], Draws]
"""Of a sample and the stretch of each of its values, from 0."""

NUM_DRAWS = 2000
SEED = 20_000_303
FEWEST_STRETCHES = 6
"""Of a sample, from which a difference is judged."""
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
        num_stretches = int(stretches.max()) + 1
        grid = _around(np.sort(values), share, num_stretches)
        size = len(grid) + 1
        cells = stretches * size + np.searchsorted(grid, values)
        up_to = np.cumsum(
            np.bincount(cells, minlength=num_stretches * size).reshape(-1, size), axis=1
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
    statistic: Statistic,
    a: Floats,
    b: Floats,
    stretches: tuple[Integers, Integers] | None = None,
    *,
    is_paired: bool = False,
) -> Difference | None:
    """Two samples with the stretches of their values; without them each value stands for itself. None where one has
    not FEWEST_STRETCHES. The same samples give the same answer.
    """
    of_a, of_b = stretches or (singles(len(a)), singles(len(b)))
    number = min(effective(of_a), effective(of_b))
    if number < FEWEST_STRETCHES:
        return None
    variances = (
        _of_pairs(statistic, a, b, of_a, of_b) if is_paired else _of_two(statistic, (a, of_a), (b, of_b))
    )
    shown_a, shown_b = plain(statistic, a), plain(statistic, b)
    by = shown_b - shown_a
    logarithm = log(shown_b / shown_a) if shown_a > 0 and shown_b > 0 else None
    reach = np.sqrt(variances) * width(number - 1)
    percent = _interval(logarithm, reach[3]) if logarithm is not None and isfinite(reach[3]) else None
    told, error = (by, variances[2]) if percent is None or logarithm is None else (logarithm, variances[3])
    return Difference(
        of_a=_interval(shown_a, reach[0]),
        of_b=_interval(shown_b, reach[1]),
        difference=_interval(by, reach[2]),
        percent=percent and Interval(low=100 * expm1(percent.low), high=100 * expm1(percent.high)),
        chance=_chance(told, sqrt(error), number - 1),
    )


def _chance(by: float, error: float, freedom: int) -> float:
    if by == 0:
        return 1.0
    return two_sided(by / error, freedom) if error else 0.0


def _of_two(statistic: Statistic, *samples: tuple[Floats, Integers]) -> Floats:
    """Variances of A, of B, of B less A, and of the logarithm of B by A: NaN where one of them may be 0."""
    found = [
        _variances(_draw(statistic, *sample, SEED + number), sample[1])
        for number, sample in enumerate(samples)
    ]
    return np.array([found[0][0], found[1][0], *(found[0] + found[1])])


def _of_pairs(statistic: Statistic, a: Floats, b: Floats, of_a: Integers, of_b: Integers) -> Floats:
    """The same of pairs, both values of which are drawn together: by the stretches of A, by those of B, and both
    variances less that of what is in one stretch of both (Cameron, Gelbach and Miller 2011), but no less than either.
    """

    def by(stretches: Integers) -> Floats:
        left, right = (_draw(statistic, values, stretches, SEED) for values in (a, b))
        apart, ratios = right - left, _log(right) - _log(left)
        return np.array([_variances(each, stretches)[0] for each in (left, right, apart, ratios)])

    found = by(of_a)
    if np.array_equal(of_a, of_b):
        return found
    other = by(of_b)
    both: Floats = np.maximum(np.maximum(found, other), found + other - by(crossed(of_a, of_b)))
    return both


def _variances(draws: Floats, stretches: Integers) -> Floats:
    """Of the draws and of their logarithms, as of a sample of so many stretches."""
    number = int(stretches.max()) + 1
    return np.array([draws.var(), _log(draws).var()]) * number / (number - 1)


def _log(draws: Floats) -> Floats:
    return np.log(draws) if draws.min() > 0 else np.full(len(draws), np.nan)


def _draw(statistic: Statistic, values: Floats, stretches: Integers, seed: int) -> Floats:
    return statistic(values, stretches)(_weights(int(stretches.max()) + 1, seed))


@lru_cache(maxsize=4)
def _weights(num_stretches: int, seed: int) -> Floats:
    weights = np.random.default_rng(seed).poisson(1.0, (NUM_DRAWS, num_stretches)).astype(np.float64)
    weights[weights.sum(axis=1) == 0] = 1.0
    return weights


def _interval(value: float, reach: float) -> Interval:
    return Interval(low=float(value - reach), high=float(value + reach))
