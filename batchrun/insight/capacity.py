"""How much a night holds: windows of tokens, hours, replicas for a deadline, limits, and what is too much."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from batchrun.insight.excess import Excess, excess
from batchrun.insight.limits import Change, input_limits, output_limits, twice
from batchrun.insight.load import Attempts, Load
from batchrun.insight.replicas import USUAL, Needed, Overhead, Replicas, needed, replicas, running_seconds
from batchrun.insight.speed import Speed, Took
from batchrun.insight.windows import TokenWindow, Totals, token_windows
from batchrun.planning.work import WorkOutline
from batchrun.telemetry.metrics_file import SCALING


@dataclass(frozen=True, kw_only=True)
class KVPeak:
    """Of the KV cache, in tokens of `kv_tokens` that there are, None where that is not known.

    Of a run: the most in use, by `at_seconds` since its start, and with how many `sequences` where a sample was taken at
    that moment. Of a plan: what `sequences` with mean input and output would hold, and in `most_wanted` those with the
    longest inputs; what there is bounds both.
    """

    tokens: int
    kv_tokens: int | None
    sequences: int | None
    at_seconds: float | None = None
    most_wanted: int | None = None

    @property
    def share(self) -> float | None:
        return self.tokens / self.kv_tokens if self.kv_tokens else None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a run left: `took_seconds` of running, and how its requests were told apart."""

    run_id: str
    took_seconds: float
    recomputed_tokens: int
    preemptions: int
    attempts: tuple[Attempts, ...]
    sample_seconds: float  # the mean time between two samples of its timeline


@dataclass(frozen=True, kw_only=True)
class Question:
    """`window_seconds` from now until the window ends, as `ends` says; `replicas` at work, one unless told."""

    window_seconds: float | None = None
    ends: str = ""
    replicas: int | None = None


@dataclass(frozen=True, kw_only=True)
class Found:
    """What is known before anything is asked: of a run (`measured`), or of a plan."""

    job_id: str
    of: str
    load: Load
    outline: WorkOutline
    speed: Speed
    overhead: Overhead
    basis: str
    by_profile: Took | None
    totals: Totals
    kv: KVPeak | None
    measured: Measured | None = None


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Seconds are of running on one replica unless said; `by_speed` is what all else is foretold by, `by_profile`
    the profile alone. `stay_seconds` pass from when the last document was let in until its output has ended: they are
    beside running, as planning, loading and publishing are. Windows of a run are counted, those of a plan foretold.
    Where no document is left nothing is told of replicas.
    """

    job_id: str
    of: str
    basis: str
    documents: int
    input_tokens: int
    output_tokens: int
    outputs_known: bool
    measured: Measured | None
    windows: tuple[TokenWindow, ...]
    peak_prefill: TokenWindow | None
    peak_decode: TokenWindow | None
    by_profile: Took | None
    by_speed: Took | None
    overhead: Overhead
    stay_seconds: float
    replicas: tuple[Replicas, ...]
    window_ends: str
    replicas_at_work: int
    needed: Needed | None
    needed_for_twice: Needed | None
    input_limits: tuple[Change, ...]
    output_limits: tuple[Change, ...]
    twice: Change
    kv: KVPeak | None
    excess: Excess | None
    scaling_signals: tuple[str, ...] = tuple(SCALING)


def capacity(found: Found, question: Question) -> Capacity:
    """The answers, from what is known; nothing is read."""
    load, speed, overhead = found.load, found.speed, found.overhead
    windows = token_windows(found.totals)
    seconds, at_work = question.window_seconds, question.replicas or 1
    asked = seconds if load.documents else None
    wanted = None if asked is None else needed(asked, load, speed, overhead)
    numbers = {*USUAL, at_work, *_told(wanted)} if load.documents else ()
    return Capacity(
        job_id=found.job_id,
        of=found.of,
        basis=found.basis,
        documents=round(load.documents),
        input_tokens=round(load.input_tokens),
        output_tokens=round(load.written_tokens),
        outputs_known=load.outputs_known,
        measured=found.measured,
        windows=tuple(windows),
        peak_prefill=max(windows, key=lambda one: one.prefill_tokens, default=None),
        peak_decode=max(windows, key=lambda one: one.decode_tokens, default=None),
        by_profile=found.by_profile,
        by_speed=speed.took(load),
        overhead=overhead,
        stay_seconds=speed.stay_seconds(load),
        replicas=tuple(filter(None, (replicas(one, load, speed, overhead) for one in sorted(numbers)))),
        window_ends=question.ends,
        replicas_at_work=at_work,
        needed=wanted,
        needed_for_twice=None if asked is None else needed(asked, load.times(2), speed, overhead.twice),
        input_limits=tuple(input_limits(load, speed)),
        output_limits=tuple(output_limits(load, speed)),
        twice=twice(load, speed),
        kv=found.kv,
        excess=None
        if asked is None
        else excess(running_seconds(asked, at_work, load, speed, overhead), load, speed, found.outline),
    )


def _told(wanted: Needed | None) -> Iterator[int]:
    for number in (wanted.replicas, wanted.replicas_if_one_is_lost) if wanted else ():
        if number is not None:
            yield number


def planned_totals(parts: Sequence[tuple[Load, float]]) -> Totals:
    """Of loads one after the other, each with its seconds, as tokens would come."""
    totals = [(0.0, 0.0, 0.0)]
    for load, seconds in parts:
        before = totals[-1]
        if seconds > 0:
            totals.append(
                (before[0] + seconds, before[1] + load.input_tokens, before[2] + load.written_tokens)
            )
    return totals
