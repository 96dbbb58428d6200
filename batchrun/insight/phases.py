"""Where the time of a run went, by what it was bound by."""

from dataclasses import dataclass, fields

from batchrun.insight.division import Division
from batchrun.run_record import RunRecord


@dataclass(frozen=True, kw_only=True)
class Phases:
    """Seconds, which together are those of the run; the engine's are by its own clock.

    `prefill_bound`, `decode_bound`: computing, shared out as the diagnosis does; what was badly fed is among them.
    `computing`: not told apart, or where a killed run took the end of its timeline with it. `draining`: places that
    stood empty when nothing was given to the engine any more, the tail of the diagnosis. `idle`: the engine had nothing
    to compute. `other`: opening and closing, and whatever is left of the whole.
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


def phases_of(record: RunRecord, division: Division, *, has_own_clock: bool = False) -> Phases:
    """The time of a run by phase; `division` is that of its own timeline.

    Where the engine has a clock of its own the whole is the sum of the parts.
    """
    seconds, spans = record.seconds, division.intervals
    rest = spans.seconds - spans.idle - division.tail
    told = (spans.idle.sum(), division.tail.sum(), *(division.read_and_written(rest) or (0.0, 0.0)))
    sampled = float(spans.seconds.sum())  # up to some ms later than the record has it
    idle, draining, reading, writing = (
        float(each) * min(1.0, seconds.running / max(sampled, 1e-12)) for each in told
    )
    apart = seconds.planning + seconds.loading + seconds.publishing
    return Phases(
        planning=seconds.planning,
        loading=seconds.loading,
        prefill_bound=reading,
        decode_bound=writing,
        computing=max(0.0, seconds.running - (idle + draining + reading + writing)),
        draining=draining,
        idle=idle,
        publishing=seconds.publishing,
        other=whole_seconds(record, has_own_clock=has_own_clock) - apart - seconds.running,
    )


def whole_seconds(record: RunRecord, *, has_own_clock: bool) -> float:
    """What `phases_of` comes to in all."""
    seconds = record.seconds
    parts = seconds.planning + seconds.loading + seconds.running + seconds.publishing
    return parts if has_own_clock else max(seconds.total, parts)
