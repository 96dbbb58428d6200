"""Shares of rows with their intervals, good where a share is 0 and where rows are few."""

from dataclasses import dataclass
from math import erfc, sqrt

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


def _newcombe(a: Share, b: Share, z: float) -> Interval | None:
    of_a, of_b = _wilson(a, z), _wilson(b, z)
    if of_a is None or of_b is None or a.value is None or b.value is None:
        return None
    by = b.value - a.value
    below = sqrt((b.value - of_b.low) ** 2 + (of_a.high - a.value) ** 2)
    above = sqrt((of_b.high - b.value) ** 2 + (a.value - of_a.low) ** 2)
    return Interval(low=by - below, high=by + above)


def _wilson(share: Share, z: float) -> Interval | None:
    if share.value is None:
        return None
    spread = z**2 / share.of
    middle = (share.value + spread / 2) / (1 + spread)
    half = z / (1 + spread) * sqrt(share.value * (1 - share.value) / share.of + spread / (4 * share.of))
    return Interval(low=max(0.0, middle - half), high=min(1.0, middle + half))
