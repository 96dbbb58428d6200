"""The course of a run: its timeline in windows, as many as a picture can show."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from batchrun.insight.division import Division
from batchrun.insight.intervals import Array, Counts, Intervals
from batchrun.insight.prices import Measured

MOST_WINDOWS = 120
SHORTEST = 0.5
"""Of the median window: in a shorter one, as before the last sample, a step that ended there would make a peak."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """Of each window of the time in which the engine ran; the lists are as long as `seconds`.

    `begin_seconds`, when the first begins, and `seconds`, when each ends, are since the run's start. A window ends where
    a step did; `documents`, `failed` and `waiting_prefill_tokens` are counts at that moment, `running` the mean of its
    samples, `kv_cache_usage` their highest; `preemptions` and the rates are the window's own, by its time with an engine.
    `ceiling_share`: of that, the time that its tokens take by the profile; empty without one.
    """

    begin_seconds: float = 0.0
    seconds: list[float] = field(default_factory=list)
    documents: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    waiting_prefill_tokens: list[int] = field(default_factory=list)
    prefill_tokens_per_second: list[float] = field(default_factory=list)
    decode_tokens_per_second: list[float] = field(default_factory=list)
    ceiling_share: list[float] = field(default_factory=list)
    running: list[float] = field(default_factory=list)
    kv_cache_usage: list[float] = field(default_factory=list)
    preemptions: list[int] = field(default_factory=list)


def course_of(timeline: pa.Table, division: Division) -> Course:
    """The windows of a timeline that `division` is of; none of one without intervals."""
    spans = division.intervals
    last = _last_intervals(spans)
    if not len(last):
        return Course()
    columns = {name: timeline[name].to_numpy() for name in timeline.column_names}
    first, ends = np.append(0, last[:-1] + 1), spans.ends[last]
    began = int(np.argmax(columns["running_seconds"] > 0))
    samples = columns["running"][: ends[-1] + 1], columns["kv_cache_usage"][: ends[-1] + 1]
    starts = np.append(began, ends[:-1] + 1)
    lasting = np.add.reduceat(spans.seconds, first)

    def gained(name: str) -> Counts:
        return np.diff(columns[name][ends], prepend=0)

    return Course(
        begin_seconds=float(columns["seconds"][began] - columns["running_seconds"][began]),
        seconds=columns["seconds"][ends].tolist(),
        documents=columns["documents"][ends].tolist(),
        failed=columns["failed"][ends].tolist(),
        waiting_prefill_tokens=columns["waiting_prefill_tokens"][ends].tolist(),
        prefill_tokens_per_second=(gained("prefill_tokens") / lasting).tolist(),
        decode_tokens_per_second=(gained("decode_tokens") / lasting).tolist(),
        ceiling_share=_ceiling_share(division, first, lasting),
        running=(np.add.reduceat(samples[0], starts) / (ends - starts + 1)).tolist(),
        kv_cache_usage=np.maximum.reduceat(samples[1], starts).tolist(),
        preemptions=gained("preemptions").tolist(),
    )


def _ceiling_share(division: Division, first: Counts, lasting: Array) -> list[float]:
    if division.costs is None or not isinstance(division.pricing, Measured):
        return []
    shares: list[float] = (np.add.reduceat(sum(division.costs), first) / lasting).tolist()
    return shares


def _last_intervals(spans: Intervals) -> Counts:
    """Those with which windows end, about as long as each other."""
    if not len(spans.seconds):
        return np.array([], np.int64)
    moments = np.cumsum(spans.seconds)
    grid = np.linspace(0, moments[-1], MOST_WINDOWS + 1)[1:]
    ends: Counts = np.unique(np.searchsorted(moments, grid).clip(0, len(moments) - 1))
    lasting = np.diff(moments[ends], prepend=0)
    is_long = lasting >= SHORTEST * float(np.median(lasting))
    is_long[-1] &= spans.steps[-1] > 0
    is_kept = np.append(is_long[1:], True)  # a short window joins the one before it, the first the one after
    is_kept[0] &= is_long[0] or len(ends) == 1
    kept: Counts = ends[is_kept]
    return kept
