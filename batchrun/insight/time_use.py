"""Where a run's time went: shares of it that do not overlap, from its timeline.

An interval between two samples is first idle, then badly fed, then at the tail; what is left is the time of an
engine that has all the work it can take, which reads or writes. How that divides is the profile's word, else that
of the timeline itself: the seconds of intervals as a sum of prompt tokens, output tokens and steps, each at a price.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from batchrun.insight.prices import MIN_INTERVALS, Array, learn_prices
from batchrun.profile import Profile

FULL_KV = 0.9
FREE = 0.5
"""Of the KV cache and of `max_num_seqs`: below it, with nothing in the engine's queue, the engine could take more."""


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


@dataclass(frozen=True, kw_only=True)
class _Intervals:
    """Between samples, of a run whose engine is there: what grew, and the gauges of the sample that began it."""

    seconds: Array
    idle: Array
    prefill: Array
    decode: Array
    steps: Array
    starved: Array
    running: Array
    kv: Array
    can_take_more: npt.NDArray[np.bool_]
    is_tail: npt.NDArray[np.bool_]


def time_use(
    timeline: pa.Table, *, start: float, max_num_seqs: int, profile: Profile | None, input_tokens: float
) -> TimeUse | None:
    """Of a timeline whose engine was there at `start`; None where it has fewer than `MIN_INTERVALS` after that, or steps.

    `input_tokens`: of a prompt, weighted by tokens, for the profile's rate of reading.
    """
    spans = _intervals(timeline, start, max_num_seqs)
    if spans is None:
        return None
    total = float(spans.seconds.sum())
    feeding = _feeding(spans)
    busy = spans.seconds - feeding
    idle = np.minimum(spans.idle, busy) * (feeding == 0)
    tail = np.minimum(_empty_places(spans), busy - idle)
    costs, growth, basis = _costs(spans, profile, input_tokens)
    before = ~spans.is_tail if not spans.is_tail.all() else spans.is_tail
    weights = (busy - idle - tail) / np.maximum(spans.seconds, 1e-12)
    left = float((busy - idle - tail).sum())
    read, written = (None, None) if costs is None else _divided(costs, weights, left)
    return TimeUse(
        seconds=total,
        num_intervals=len(spans.seconds),
        idle=float(idle.sum()) / total,
        feeding=float(feeding.sum()) / total,
        tail=float(tail.sum()) / total,
        reading=None if read is None else read / total,
        writing=None if written is None else written / total,
        basis=basis,
        growth=growth,
        full_kv=float(spans.seconds[spans.kv > FULL_KV].sum()) / total,
        running=float(np.median(spans.running[before])),
        kv_cache_usage=float(np.median(spans.kv[before])),
        starved_steps=float(spans.starved.sum() / max(1.0, spans.steps.sum())),
    )


def _intervals(timeline: pa.Table, start: float, max_num_seqs: int) -> _Intervals | None:
    columns = {name: timeline[name].to_numpy().astype(float) for name in timeline.column_names}
    moments = np.maximum(columns["seconds"], start)
    kept = np.flatnonzero(np.append(np.diff(moments) > 0, True))
    if len(kept) <= MIN_INTERVALS or columns["num_steps"][-1] < MIN_INTERVALS:
        return None
    columns = {name: values[kept] for name, values in columns.items()}
    grown = {name: np.diff(values) for name, values in columns.items()}
    gauges = {name: values[:-1] for name, values in columns.items()}
    seconds = np.diff(moments[kept])
    comes = gauges["waiting_prefill_tokens"] != columns["waiting_prefill_tokens"][-1]
    queues = gauges["waiting"] > 0
    has_room = (gauges["running"] < FREE * max_num_seqs) & (gauges["kv_cache_usage"] < FREE)
    is_there = gauges["num_steps"] > 0
    held = columns["running"] + columns["waiting"]
    is_empty = is_there & (grown["num_steps"] == 0) & (held[:-1] == 0) & (held[1:] == 0)
    return _Intervals(
        seconds=seconds,
        idle=np.where(is_empty, seconds, np.minimum(grown["idle_seconds"], seconds)),
        prefill=grown["prefill_tokens"] + grown["padded_tokens"],
        decode=grown["decode_tokens"],
        steps=grown["num_steps"],
        starved=grown["starved_steps"],
        running=(gauges["running"] + columns["running"][1:]) / 2,
        kv=gauges["kv_cache_usage"],
        can_take_more=comes & ~queues & has_room & is_there,
        is_tail=~np.maximum.accumulate((comes | queues)[::-1])[::-1] & is_there,
    )


def _feeding(spans: _Intervals) -> Array:
    """Seconds in which work waited and the engine could have taken it: of starved steps, or as the gauges say."""
    starved = np.minimum(spans.starved / np.maximum(spans.steps, 1.0), 1.0)
    idle = np.where(spans.can_take_more | (starved > FREE), spans.idle, 0.0)
    share = np.maximum(starved, spans.can_take_more)
    return np.asarray(idle + share * (spans.seconds - idle) * (spans.steps > 0), dtype=float)


def _empty_places(spans: _Intervals) -> Array:
    """Seconds of the tail, each by the share of sequences that it lacks of those before it."""
    if not spans.is_tail.any():
        return np.zeros_like(spans.seconds)
    before = spans.running[~spans.is_tail]
    usual = float(np.median(before)) if len(before) else float(spans.running.max())
    missing = np.clip(1 - spans.running / max(usual, 1.0), 0, 1)
    return np.asarray(spans.seconds * missing * spans.is_tail, dtype=float)


# -- reading and writing -----------------------------------------------------------------------------


def _divided(costs: tuple[Array, Array], weights: Array, busy: float) -> tuple[float, float]:
    """The busy seconds as reading and writing, by what each costs in the part of the intervals that is busy."""
    reading, writing = (float((cost * weights).sum()) for cost in costs)
    both = reading + writing
    return (busy * reading / both, busy * writing / both) if both > 0 else (0.0, busy)


def _costs(
    spans: _Intervals, profile: Profile | None, input_tokens: float
) -> tuple[tuple[Array, Array] | None, float | None, str]:
    """Seconds of reading and of writing by interval, and how intervals between tokens grow with sequences."""
    usual = (
        float(np.median(spans.running[~spans.is_tail])) if not spans.is_tail.all() else spans.running.max()
    )
    if profile is not None:
        reading = spans.prefill / profile.prefill_rate(max(1.0, input_tokens))
        rates = np.array([profile.decode_rate(max(1.0, number)) for number in spans.running])
        return (reading, spans.decode / rates), _growth_of(profile, usual), "profile"
    prices = learn_prices(spans.seconds - spans.idle, spans.prefill, spans.decode, spans.steps)
    if prices is None:
        return None, None, ""
    writing = prices.of_output * spans.decode + prices.of_step * spans.steps
    return (prices.of_prompt * spans.prefill, writing), prices.growth(usual), "timeline"


def _growth_of(profile: Profile, running: float) -> float | None:
    """Between half of the sequences and all of them; None where fewer than that were measured."""
    if running < 2 or profile.decode[-1][0] < 2:  # noqa: PLR2004 - a half and a whole
        return None
    intervals = [number / profile.decode_rate(number) for number in (running / 2, running)]
    return float(np.log2(intervals[1] / intervals[0]))
