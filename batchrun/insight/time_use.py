"""Where a run's time went: shares of it that do not overlap."""

from dataclasses import dataclass

from batchrun.insight.division import Division
from batchrun.insight.intervals import Array, median
from batchrun.insight.prices import MIN_INTERVALS

FULL_KV = 0.9


@dataclass(frozen=True, kw_only=True)
class TimeUse:
    """Shares of `seconds`, which are those of the run with its engine there.

    `feeding`: work waited for the engine, which had room and no queue. `tail`: places that stood empty when nothing
    was given to the engine any more. `reading` (padding and what was read again among it) and `writing`: None, they
    can not be told apart. `growth`: by which power of the number of sequences the interval between their tokens grows;
    0: not, 1: with it. `full_kv`: with more than 90 % of the KV cache in use. `running` and `kv_cache_usage`: medians
    of the time before the tail.
    """

    seconds: float
    num_intervals: int
    idle: float
    feeding: float
    tail: float
    reading: float | None
    writing: float | None
    basis: str
    growth: float | None
    full_kv: float
    running: float
    kv_cache_usage: float
    starved_steps: float  # a share of the steps


def time_use(division: Division) -> TimeUse | None:
    """None where a run has fewer than `MIN_INTERVALS` in which a step ended."""
    spans, pricing = division.intervals, division.pricing
    if (spans.steps > 0).sum() < MIN_INTERVALS:
        return None
    total = float(spans.seconds.sum())
    parts = division.read_and_written(division.work)
    before = ~spans.is_tail if not spans.is_tail.all() else spans.is_tail

    def share(seconds: Array) -> float:
        return float(seconds.sum()) / total

    return TimeUse(
        seconds=total,
        num_intervals=len(spans.seconds),
        idle=share(division.idle),
        feeding=share(division.feeding),
        tail=share(division.tail),
        reading=None if parts is None else parts[0] / total,
        writing=None if parts is None else parts[1] / total,
        basis="" if pricing is None else pricing.basis,
        growth=None if pricing is None else pricing.growth(spans.usual_running),
        full_kv=share(spans.seconds[spans.kv > FULL_KV]),
        running=spans.usual_running,
        kv_cache_usage=median(spans.kv[before], spans.seconds[before]),
        starved_steps=float(spans.starved.sum() / max(1.0, spans.steps.sum())),
    )
