"""Student's t distribution, for whole degrees of freedom."""

from functools import lru_cache
from math import atan, cos, pi, sin, sqrt

LEVEL = 0.05
"""Left out by an interval of 95 %, on both sides together."""


def two_sided(t: float, freedom: int) -> float:
    """The chance of a value as far from 0, either way (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4). Below about
    1e-12 it is what rounding leaves, and never less than 0.
    """
    angle = atan(abs(t) / sqrt(freedom))
    square, is_odd = cos(angle) ** 2, freedom % 2
    term = total = (cos(angle) if freedom > 1 else 0.0) if is_odd else 1.0
    for place in range(3 if is_odd else 2, freedom - 1, 2):
        term *= square * (place - 1) / place
        total += term
    within = 2 / pi * (angle + sin(angle) * total) if is_odd else sin(angle) * total
    return max(0.0, 1.0 - within)


@lru_cache
def width(freedom: int) -> float:
    """Standard errors on either side in an interval of 95 %: 12.7 for one degree, 1.96 for many."""
    low, high = 0.0, 16.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, freedom) > LEVEL else (low, middle)
    return high
