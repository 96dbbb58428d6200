"""The course of a run: its timeline in windows, as many as a picture can show."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from batchrun.insight.phases import most_running
from batchrun.profile import Profile
from batchrun.run_record import RunRecord

Counts = npt.NDArray[np.int64]

MOST_WINDOWS = 120
SHORTEST = 0.5
"""Of the median window: in a shorter one, as before the last sample, a step that ended there would make a peak."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """Of each window of the time in which the engine ran; the lists are as long as `seconds`.

    `seconds` is the window's end since the run's start; `documents`, `failed` and `waiting_prefill_tokens` are counts
    at that moment, `running` the mean of its samples, `kv_cache_usage` their highest; `preemptions` and the rates are
    the window's own. `ceiling_share`: of the window, the time that its tokens take by the profile; empty without one.
    """

    seconds: list[float]
    documents: list[int]
    failed: list[int]
    waiting_prefill_tokens: list[int]
    prefill_tokens_per_second: list[float]
    decode_tokens_per_second: list[float]
    ceiling_share: list[float]
    running: list[float]
    kv_cache_usage: list[float]
    preemptions: list[int]


def course_of(record: RunRecord, timeline: pa.Table, input_tokens: float) -> Course:
    """The windows of a timeline; none where it has less than two samples of the running engine."""
    begin = record.seconds.planning + record.seconds.loading
    columns = {name: timeline[name].to_numpy() for name in timeline.column_names}
    moments = columns["seconds"]
    ends = _ends(moments, begin)
    starts = np.concatenate([[0], ends[:-1] + 1])[: len(ends)]
    lasting = np.diff(moments[ends], prepend=begin)

    def gained(name: str) -> Counts:
        return np.diff(columns[name][ends], prepend=0)

    prefill, decode = gained("prefill_tokens"), gained("decode_tokens")
    running = np.add.reduceat(columns["running"], starts) / (ends - starts + 1) if len(ends) else np.array([])
    highest = np.maximum.reduceat(columns["kv_cache_usage"], starts) if len(ends) else np.array([])
    most = np.maximum.reduceat(most_running(columns["running"]), starts) if len(ends) else np.array([])
    return Course(
        seconds=moments[ends].tolist(),
        documents=columns["documents"][ends].tolist(),
        failed=columns["failed"][ends].tolist(),
        waiting_prefill_tokens=columns["waiting_prefill_tokens"][ends].tolist(),
        prefill_tokens_per_second=(prefill / lasting).tolist(),
        decode_tokens_per_second=(decode / lasting).tolist(),
        ceiling_share=[
            _seconds_by(record.profile, read, written, number, input_tokens) / seconds
            for read, written, number, seconds in zip(
                *(each.tolist() for each in (prefill, decode, most, lasting)), strict=True
            )
        ]
        if record.profile
        else [],
        running=running.tolist(),
        kv_cache_usage=highest.tolist(),
        preemptions=gained("preemptions").tolist(),
    )


def _ends(moments: npt.NDArray[np.float64], begin: float) -> Counts:
    """The samples with which windows end, about as long as each other."""
    [running] = np.nonzero(moments > begin)
    if len(running) < 2:  # noqa: PLR2004 - a point is no course
        return np.array([], np.int64)
    grid = np.linspace(begin, moments[-1], MOST_WINDOWS + 1)[1:]
    ends: Counts = np.unique(np.searchsorted(moments, grid).clip(running[0], len(moments) - 1))
    shortest = SHORTEST * float(np.median(np.diff(moments[ends], prepend=begin)))
    is_long = np.diff(moments[ends], prepend=begin) >= shortest
    is_kept = np.append(is_long[1:], True)  # a short window joins the one before it, the first the one after
    is_kept[0] &= is_long[0] or len(ends) == 1
    kept: Counts = ends[is_kept]
    return kept


def _seconds_by(profile: Profile, read: float, written: float, running: float, input_tokens: float) -> float:
    reading = read / profile.prefill_rate(max(1.0, input_tokens))
    return reading + written / profile.decode_rate(max(1.0, running))
