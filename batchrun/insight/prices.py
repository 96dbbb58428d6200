"""What a prompt token, an output token and a step take, learnt from the intervals of a night."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

MIN_INTERVALS = 20
"""From which, and as many steps, shares of the time are told, and prices are learnt."""
LEEWAY = 0.15
"""Within which a share that was learnt must be known to be told."""
ROUNDING = 1e-6
PIECES = 96
"""Prices are learnt from so many stretches of the night at most: a step that spans two samples belongs to both."""


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Seconds of a prompt token, of an output token and of a step, and the standard error of the second."""

    of_prompt: float
    of_output: float
    of_step: float
    error_of_output: float

    def growth(self, running: float) -> float | None:
        """The power of the number of sequences by which the interval between their tokens grows; None: not known."""
        step = self.of_step + self.of_output * running
        if step <= 0 or 2 * self.error_of_output * running > LEEWAY * step:
            return None
        return self.of_output * running / step


def learn_prices(seconds: Array, prefill: Array, decode: Array, steps: Array) -> Prices | None:
    """The prices, none below 0, that make up the seconds of intervals best: least squares.

    None where the intervals do not tell reading from the rest: too few, or so even that the share of reading is known
    no better than to `LEEWAY`, by two standard errors.
    """
    rows, spent = _pieces(np.stack([prefill, decode, steps], axis=1), seconds)
    if len(rows) < MIN_INTERVALS:
        return None
    found = _least_squares(rows, spent)
    noise = float(np.sqrt(((rows @ found - spent) ** 2).sum() / (len(rows) - 3)))
    if 2 * noise * rows[:, 0].sum() >= LEEWAY * spent.sum() * _distinct(rows, 0):
        return None
    distinct = _distinct(rows, 1)
    return Prices(
        of_prompt=float(found[0]),
        of_output=float(found[1]),
        of_step=float(found[2]),
        error_of_output=noise / distinct if distinct else float("inf"),
    )


def _distinct(rows: Array, column: int) -> float:
    """The length of what the other columns can not make up of one: its price is known to the noise by this. 0 where
    they make up all but what rounding leaves.
    """
    others = np.delete(rows, column, axis=1)
    made_up = others @ np.linalg.lstsq(others, rows[:, column], rcond=None)[0]
    left = float(np.linalg.norm(rows[:, column] - made_up))
    return left if left > ROUNDING * float(np.linalg.norm(rows[:, column])) else 0.0


def _pieces(rows: Array, seconds: Array) -> tuple[Array, Array]:
    size = -(-len(rows) // PIECES)
    starts = np.arange(0, len(rows), size)
    summed, spent = np.add.reduceat(rows, starts), np.add.reduceat(seconds, starts)
    worked = summed[:, 2] > 0
    return summed[worked], spent[worked]


def _least_squares(rows: Array, seconds: Array) -> Array:
    """With no price below 0: the best of the solutions by some of the three alone."""
    best, least = np.zeros(3), float((seconds**2).sum())
    for size in (3, 2, 1):
        for chosen in map(list, combinations(range(3), size)):
            prices = np.linalg.lstsq(rows[:, chosen], seconds, rcond=None)[0]
            rest = float(((rows[:, chosen] @ prices - seconds) ** 2).sum())
            if (prices >= 0).all() and rest < least * (1 - 1e-9):
                best, least = np.zeros(3), rest
                best[chosen] = prices
    return best
