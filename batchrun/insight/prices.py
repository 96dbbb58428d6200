"""What a prompt token and an output token take: by a profile, or learnt from the intervals of a night."""

from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

import numpy as np

from batchrun.insight.intervals import Array, Intervals
from batchrun.profile import Profile

MIN_INTERVALS = 20
"""From which, and as many steps, shares of the time are told, and prices are learnt."""
LEEWAY = 0.15
"""Within which a share that was learnt must be known to be told."""
ROUNDING = 1e-6
PIECES = 96
"""Prices are learnt from so many stretches of the night at most: the sample after a step comes some time later."""


class Pricing(Protocol):
    """Seconds of tokens; `basis` says whose word it is."""

    @property
    def basis(self) -> str: ...

    def of_prompt_token(self, length: float) -> float:
        """Of a prompt that is so long."""

    def of_output_token(self, running: float) -> float:
        """Beside so many sequences, itself among them."""

    def writing(self, intervals: Intervals) -> Array:
        """Seconds of the outputs of each interval."""

    def growth(self, running: float) -> float | None:
        """The power of the number of sequences by which the interval between their tokens grows; None: not known."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """By a profile."""

    profile: Profile
    basis: str = "profile"

    def of_prompt_token(self, length: float) -> float:
        return 1 / self.profile.prefill_rate(max(1.0, length))

    def of_output_token(self, running: float) -> float:
        return 1 / self.profile.decode_rate(max(1.0, running))

    def writing(self, intervals: Intervals) -> Array:
        prices = [self.of_output_token(number) for number in intervals.running]
        return np.asarray(intervals.decode * np.array(prices), dtype=float)

    def growth(self, running: float) -> float | None:
        """Between half of the sequences and all of them; None where fewer than that were measured. Not below 0: more
        sequences make no token quicker, a machine that was busy while few were measured does.
        """
        if running < 2 or self.profile.decode[-1][0] < 2:  # noqa: PLR2004 - a half and a whole
            return None
        half, whole = (number * self.of_output_token(number) for number in (running / 2, running))
        return max(0.0, float(np.log2(whole / half)))


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Learnt: seconds of a prompt token, of an output token and of a step, and the standard error of the second."""

    of_prompt: float
    of_output: float
    of_step: float
    error_of_output: float
    basis: str = "timeline"

    def of_prompt_token(self, length: float) -> float:  # noqa: ARG002 - one price for all lengths
        return self.of_prompt

    def of_output_token(self, running: float) -> float:
        return self.of_output + self.of_step / max(1.0, running)

    def writing(self, intervals: Intervals) -> Array:
        return self.of_output * intervals.decode + self.of_step * intervals.steps

    def growth(self, running: float) -> float | None:
        step = self.of_step + self.of_output * running
        if step <= 0 or 2 * self.error_of_output * running > LEEWAY * step:
            return None
        return self.of_output * running / step


def pricing_of(intervals: Intervals, profile: Profile | None, *, is_doubted: bool = False) -> Pricing | None:
    """The profile's, else the night's own; None where it has none. A profile that `is_doubted` has the last word."""
    measured = None if profile is None else Measured(profile=profile)
    if measured is not None and not is_doubted:
        return measured
    busy = intervals.seconds - intervals.idle
    return learn_prices(busy, intervals.prefill, intervals.decode, intervals.steps) or measured


def learn_prices(seconds: Array, prefill: Array, decode: Array, steps: Array) -> Prices | None:
    """The prices, none below 0, that make up the seconds of intervals best: least squares.

    None where the intervals do not tell reading from the rest: too few, or so even that the share of reading is known
    no better than to `LEEWAY`, by two standard errors. A prompt that vLLM reads in several steps is counted whole with
    the last of them: where a stretch holds fewer steps than a prompt needs, reading comes out too low, by a twentieth
    of itself at four steps a prompt and one a stretch.
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
    """Of intervals in each of which a step ended; what comes after the last step says nothing."""
    worked = rows[:, 2] > 0
    rows, seconds = rows[worked], seconds[worked]
    if not len(rows):
        return rows, seconds
    starts = np.arange(0, len(rows), -(-len(rows) // PIECES))
    return np.add.reduceat(rows, starts), np.add.reduceat(seconds, starts)


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
