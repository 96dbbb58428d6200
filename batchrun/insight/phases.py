"""Where the time of a run went, by what it was bound by."""

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from batchrun.profile import Profile
from batchrun.run_record import RunRecord

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Phases:
    """Seconds, which together are those of the run; the engine's are by its own clock.

    `prefill_bound`, `decode_bound`: computing, shared out by what the profile says that reading and writing take.
    `computing`: not told apart, without a profile, or where a killed run took the end of its timeline with it.
    `draining`: sequences ended and no document was left to take their place. `idle`: the engine had nothing to
    compute. `other`: opening and closing, and whatever is left of the whole.
    """

    planning: float = 0.0
    loading: float = 0.0
    prefill_bound: float = 0.0
    decode_bound: float = 0.0
    computing: float = 0.0
    draining: float = 0.0
    idle: float = 0.0
    publishing: float = 0.0
    other: float = 0.0

    @property
    def total(self) -> float:
        return float(sum(getattr(self, field.name) for field in fields(self)))


def phases_of(
    record: RunRecord, timeline: pa.Table, input_tokens: float, *, has_own_clock: bool = False
) -> Phases:
    """The time of a run by phase; `timeline` is its own, `input_tokens` the mean of a prompt.

    Where the engine has a clock of its own the whole is the sum of the parts, and it is never idle by that clock.
    """
    seconds = record.seconds
    running = _Running(record, timeline, has_own_clock=has_own_clock)
    reading, writing = running.bound(record.profile, input_tokens) if record.profile else (0.0, 0.0)
    told = reading + writing + running.draining + running.idle
    apart = seconds.planning + seconds.loading + seconds.publishing
    return Phases(
        planning=seconds.planning,
        loading=seconds.loading,
        prefill_bound=reading,
        decode_bound=writing,
        computing=max(0.0, seconds.running - told),
        draining=running.draining,
        idle=running.idle,
        publishing=seconds.publishing,
        other=whole_seconds(record, has_own_clock=has_own_clock) - apart - seconds.running,
    )


def whole_seconds(record: RunRecord, *, has_own_clock: bool) -> float:
    """What `phases_of` comes to in all."""
    seconds = record.seconds
    parts = seconds.planning + seconds.loading + seconds.running + seconds.publishing
    return parts if has_own_clock else max(seconds.total, parts)


def most_running(running: Counts) -> Counts:
    """For each sample the sequences that ran then or at the one before: at the end of an interval in which outputs
    were written they may all have ended.
    """
    before: Counts = np.concatenate([[0], running[:-1]])[: len(running)]
    most: Counts = np.maximum(running, before)
    return most


class _Running:
    """The intervals that end with the samples of a timeline, as far as the engine ran in them."""

    def __init__(self, record: RunRecord, timeline: pa.Table, *, has_own_clock: bool) -> None:
        begin = record.seconds.planning + record.seconds.loading
        moments = timeline["seconds"].to_numpy().clip(begin, begin + record.seconds.running)
        spent = np.diff(moments, prepend=begin)
        self._running = most_running(timeline["running"].to_numpy())
        self._prefill, self._decode, idle = (
            np.diff(timeline[name].to_numpy(), prepend=0)
            for name in ("prefill_tokens", "decode_tokens", "idle_seconds")
        )
        idle = np.minimum(idle * (not has_own_clock), spent)
        left = np.concatenate([[1], timeline["waiting_prefill_tokens"].to_numpy()[:-1]])[: len(spent)]
        self._is_draining = (left == 0) & (self._prefill == 0)
        self._busy = spent - idle
        self.idle = float(idle.sum())
        self.draining = float(self._busy[self._is_draining].sum())

    def bound(self, profile: Profile, input_tokens: float) -> tuple[float, float]:
        """Seconds of reading and of writing. An interval without a token belongs to the next that has some: its
        step was not over.
        """
        reading = self._prefill / profile.prefill_rate(max(1.0, input_tokens))
        rates = {number: profile.decode_rate(max(1, number)) for number in set(self._running.tolist())}
        writing = self._decode / np.array([rates[number] for number in self._running.tolist()])
        busy = np.where(self._is_draining, 0.0, self._busy)
        [places] = np.nonzero(~self._is_draining & (reading + writing > 0))
        if not len(places):
            return 0.0, 0.0
        ends = np.cumsum(busy)[places]
        whole = np.diff(ends, prepend=0.0)
        share = reading[places] / (reading[places] + writing[places])
        return float((whole * share).sum()), float((whole * (1 - share)).sum())
