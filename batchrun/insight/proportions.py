"""Shares of rows with their intervals, good where a share is 0 and where rows are few."""

from dataclasses import dataclass
from math import erfc, exp, lgamma, log, sqrt

from batchrun.insight.bootstrap import Interval

Z = 1.959963984540054
"""Of the normal distribution, for 95 % on both sides."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """`number` of `of` rows, which are all that it could have been."""

    number: int
    of: int

    @property
    def value(self) -> float | None:
        return self.number / self.of if self.of else None

    @property
    def interval(self) -> Interval | None:
        """Wilson's score interval (1927)."""
        return _wilson(self, Z)


def share_difference(a: Share, b: Share) -> Interval | None:
    """Of B less A: Newcombe's hybrid of two Wilson intervals (1998, method 10). None without rows."""
    return _newcombe(a, b, Z)


def share_chance(a: Share, b: Share) -> float:
    """Of a difference as large, either way, where there is none: the level from which the interval holds 0."""
    if a.value is None or b.value is None or a.value == b.value:
        return 1.0
    low, high = 0.0, 40.0
    for _ in range(50):
        middle = (low + high) / 2
        found = _newcombe(a, b, middle)
        assert found is not None
        low, high = (low, middle) if found.low <= 0 <= found.high else (middle, high)
    return erfc(high / sqrt(2))


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Texts that have a verdict in A and in B, by those which failed in both, in A or B alone, in none."""

    both: int
    only_a: int
    only_b: int
    none: int

    @property
    def a(self) -> Share:
        return Share(number=self.both + self.only_a, of=self._of)

    @property
    def b(self) -> Share:
        return Share(number=self.both + self.only_b, of=self._of)

    @property
    def _of(self) -> int:
        return self.both + self.only_a + self.only_b + self.none

    @property
    def difference(self) -> Interval | None:
        """Of B less A: two Wilson intervals with the correlation of the pairs (Newcombe 1998, paired, method 10)."""
        return _newcombe(self.a, self.b, Z, self._correlation)

    @property
    def chance(self) -> float:
        """Of as many more on one side, either way, where each text is as like to fail in A as in B: the exact sign test
        (McNemar 1947) of those that differ.
        """
        number, least = self.only_a + self.only_b, min(self.only_a, self.only_b)
        all_of = lgamma(number + 1) - number * log(2)
        found = sum(exp(all_of - lgamma(few + 1) - lgamma(number - few + 1)) for few in range(least + 1))
        return min(1.0, 2 * found)

    @property
    def _correlation(self) -> float:
        a, b = self.a, self.b
        below = sqrt(a.number * (a.of - a.number)) * sqrt(b.number * (b.of - b.number))
        above = self.both * self.none - self.only_a * self.only_b
        corrected = max(0.0, above - self._of / 2) if above > 0 else above
        return corrected / below if below else 0.0


def _newcombe(a: Share, b: Share, z: float, correlation: float = 0.0) -> Interval | None:
    of_a, of_b = _wilson(a, z), _wilson(b, z)
    if of_a is None or of_b is None or a.value is None or b.value is None:
        return None
    by = b.value - a.value
    below = _joined(b.value - of_b.low, of_a.high - a.value, correlation)
    above = _joined(of_b.high - b.value, a.value - of_a.low, correlation)
    return Interval(low=by - below, high=by + above)


def _joined(one: float, other: float, correlation: float) -> float:
    return sqrt(max(0.0, one**2 - 2 * correlation * one * other + other**2))


def _wilson(share: Share, z: float) -> Interval | None:
    if share.value is None:
        return None
    spread = z**2 / share.of
    middle = (share.value + spread / 2) / (1 + spread)
    half = z / (1 + spread) * sqrt(share.value * (1 - share.value) / share.of + spread / (4 * share.of))
    return Interval(low=max(0.0, middle - half), high=min(1.0, middle + half))
