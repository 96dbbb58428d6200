"""What a capacity plan rests on: a run and what it left, or a corpus, its plan and a profile."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from batchrun.database import DatabaseError, OutOfMemory
from batchrun.errors import BatchrunError, ConfigError
from batchrun.estimate import inputs_of
from batchrun.fit import LOADING_SECONDS
from batchrun.forecast import known_loading, planned
from batchrun.insight.capacity import Found, KVPeak, Measured, planned_totals
from batchrun.insight.facts import RunFacts, runs_of_job
from batchrun.insight.load import Attempts, Load, load_of_requests, load_of_work
from batchrun.insight.replicas import Overhead
from batchrun.insight.speed import Speed
from batchrun.insight.windows import Totals
from batchrun.job import Job, reopen_job
from batchrun.prediction import known_output, known_rate
from batchrun.preparation import CorpusInput
from batchrun.profile import Profile
from batchrun.reporter import Reporter
from batchrun.run_record import RunRecord
from batchrun.store.checkpoints import Checkpoints
from batchrun.subject import known_profile
from batchrun.telemetry.run_records import last_that_computed
from batchrun.window import PUBLISHED_ROWS_PER_SECOND, PUBLISHING_SECONDS
from batchrun.worker.admission import SPARE_SHARE

PLANNED_TOKENS_PER_SECOND = 3_000_000
"""Of planning where a run found its plan made, or none has run: half of what two cores reach (`python -m benchmarks.overhead`)."""
CALIBRATE = "measure the engine with batchrun calibrate: then times are told by length of input and by output"


def grounds_of_run(facts: RunFacts, note: Callable[[str], None]) -> Found:
    """Of what a run computed. Raises ConfigError where it computed nothing, or its request telemetry is gone."""
    record, spec = facts.record, facts.job.spec
    if not record.rows.computed or not record.seconds.running:
        raise ConfigError(
            f"run {record.run_id} computed nothing",
            "Give a run that did, or a corpus: batchrun capacity CORPUS.",
        )
    if not facts.requests:
        raise ConfigError(
            f"the request telemetry of run {record.run_id} is gone",
            "Give its corpus: batchrun capacity CORPUS.",
        )
    longest = record.limits["max_model_len"] - spec.output.max_tokens
    load, attempts = _counted(facts, longest)
    if not load.documents:
        raise ConfigError(
            f"all requests of run {record.run_id} failed",
            f"See why: batchrun results {record.job_id} --only failed. Or give its corpus: batchrun capacity CORPUS.",
        )
    profile = record.profile or _profile_of_job(facts, note)
    running = running_at_once(load, longest, record.limits["max_num_seqs"], record.limits["kv_tokens"])
    speed = Speed(profile=profile, longest=longest, running=running)
    by_profile = speed.took(load)
    took = record.seconds.running
    speed = replace(
        speed,
        factor=took / by_profile.seconds if by_profile else 1.0,
        tokens_per_second=load.input_tokens / took,
    )
    totals = _sampled(facts)
    return Found(
        job_id=record.job_id,
        of=f"run {record.run_id} of {', '.join(record.corpus)}"
        + (f", shard {record.shard}" if record.shard else ""),
        load=load,
        outline=load.outline(spec, longest),
        speed=speed,
        overhead=Overhead(
            planning=max(
                load.input_tokens / PLANNED_TOKENS_PER_SECOND,
                *(one.record.seconds.planning for one in [facts, *runs_of_job(facts)]),
            ),
            loading=record.seconds.loading,
            publishing=record.seconds.publishing or _publishing(record.rows.total),
            is_planned=False,
        ),
        basis=_basis(speed, is_measured=True),
        by_profile=by_profile,
        totals=totals,
        kv=_measured_peak(facts),
        measured=Measured(
            run_id=record.run_id,
            took_seconds=took,
            recomputed_tokens=record.tokens.recomputed,
            preemptions=record.metrics.num_preemptions,
            attempts=tuple(attempts),
            sample_seconds=(totals[-1][0] - totals[0][0]) / (len(totals) - 1) if len(totals) > 1 else 0.0,
        ),
    )


def _counted(facts: RunFacts, longest: int) -> tuple[Load, list[Attempts]]:
    """Raises ConfigError where the run's request telemetry does not hold what was written to it."""
    try:
        return load_of_requests(facts.requests, facts.scratch, facts.job.spec, longest)
    except OutOfMemory:
        raise
    except DatabaseError as error:
        files = ", ".join(map(str, facts.requests))
        raise ConfigError(
            f"{files} is damaged: {str(error).splitlines()[0]}", "Give its corpus: batchrun capacity CORPUS."
        ) from error


def grounds_of_corpus(job: Job, corpus: CorpusInput, reporter: Reporter) -> Found:
    """Of what a corpus leaves to run, by its plan, which is made where it is new. Raises BatchrunError."""
    longest = job.max_model_len - job.spec.output.max_tokens
    started = time.monotonic()
    with planned(job, corpus, reporter) as (_, work):
        planning = time.monotonic() - started
        known = Checkpoints(job.paths, "capacity").recent_lengths()
        load = load_of_work(work, job.spec, longest, known, known_output(job))
        counts = work.counts
    runs = last_that_computed(job.workspace, job.job_id)
    kv_tokens = _kv_tokens(runs)
    profile = known_profile(job, reporter.note)
    running = running_at_once(load, longest, job.spec.engine.max_num_seqs, kv_tokens)
    speed = Speed(profile=profile, longest=longest, running=running, tokens_per_second=known_rate(job))
    measured_planning = max([planning, *(run.seconds.planning for run in runs)])
    return Found(
        job_id=job.job_id,
        of=f"plan of {', '.join(corpus.given)}" + (f", shard {corpus.shard}" if corpus.shard else ""),
        load=load,
        outline=load.outline(job.spec, longest),
        speed=speed,
        overhead=Overhead(
            planning=max(measured_planning, counts.to_run_tokens / PLANNED_TOKENS_PER_SECOND),
            loading=LOADING_SECONDS if (loading := known_loading(job)) is None else loading,
            publishing=_publishing(counts.total),
            is_planned=True,
        ),
        basis=_basis(speed, is_measured=False),
        by_profile=speed.took(load) if profile else None,
        totals=_foretold(load, speed, longest),
        kv=_foretold_peak(load, longest, running, kv_tokens),
    )


def running_at_once(load: Load, longest: int, max_num_seqs: int, kv_tokens: int | None) -> int:
    """Sequences that the KV cache holds, with mean input and output, and at most as many as the engine runs."""
    if kv_tokens is None or not load.documents:
        return max_num_seqs
    held = _mean_call(load, longest)
    return max(1, min(max_num_seqs, int(kv_tokens * (1 - SPARE_SHARE) / held)))


def _mean_call(load: Load, longest: int) -> float:
    """Tokens of a call with its output: a document beyond `longest` is several."""
    calls = sum(number for number, _ in _calls(load, longest))
    return (load.input_tokens + load.written_tokens) / max(1.0, calls)


def _calls(load: Load, longest: int) -> tuple[tuple[float, float], ...]:
    return inputs_of(
        [one.documents for one in load.classes], [one.tokens for one in load.classes], longest=longest
    )


def _profile_of_job(facts: RunFacts, note: Callable[[str], None]) -> Profile | None:
    """One that was measured since."""
    try:
        return known_profile(reopen_job(facts.workspace, facts.record.job_id, seed=facts.record.seed), note)
    except BatchrunError:  # the job's model is gone
        return None


def _basis(speed: Speed, *, is_measured: bool) -> str:
    profile = speed.profile
    if not speed.is_known:
        return f"no speed is known, so that no time is told; {CALIBRATE}"
    if profile is None:
        return f"times by the input tokens/s of the {'run' if is_measured else 'last run'} alone; {CALIBRATE}"
    name = f"the profile of {profile.calibrated_at[:10]} on {profile.of.device}"
    told = f"times by {name}, as much slower or faster as this run was" if is_measured else f"times by {name}"
    return told if speed.doubt is None else f"{told}; {speed.doubt}: batchrun calibrate, with more --seconds"


def _publishing(num_rows: int) -> float:
    return PUBLISHING_SECONDS + num_rows / PUBLISHED_ROWS_PER_SECOND


def _sampled(facts: RunFacts) -> Totals:
    """From when the engine was there: a sample is taken some time after."""
    names = ("seconds", "prefill_tokens", "decode_tokens")
    rows: Totals = list(zip(*(facts.timeline[name].to_pylist() for name in names), strict=True))
    begun = [row for row in rows if row[1] or row[2]]
    if not begun:
        return []
    loaded = facts.record.seconds.planning + facts.record.seconds.loading
    return [(min(loaded, begun[0][0]), 0.0, 0.0), *begun]


def _foretold(load: Load, speed: Speed, longest: int) -> Totals:
    """Documents in parts come first, then all others as they are mixed."""
    parts = [load.of_length(longest + 1), load.below(longest + 1)]
    took = [(part, speed.took(part)) for part in parts if part.documents]
    return planned_totals([(part, one.seconds) for part, one in took if one is not None])


def _measured_peak(facts: RunFacts) -> KVPeak | None:
    timeline, limits = facts.timeline, facts.record.limits
    if not timeline.num_rows:
        return None
    names = ["kv_cache_usage_max", "kv_cache_usage", "running", "seconds"]
    samples = timeline.select(names).to_pylist()
    peak = max(samples, key=lambda row: row["kv_cache_usage_max"])  # the first that has it behind it
    is_sampled = peak["kv_cache_usage"] >= peak["kv_cache_usage_max"]
    return KVPeak(
        tokens=round(peak["kv_cache_usage_max"] * limits["kv_tokens"]),
        kv_tokens=limits["kv_tokens"],
        sequences=peak["running"] if is_sampled else None,
        at_seconds=peak["seconds"],
    )


def _foretold_peak(load: Load, longest: int, running: int, kv_tokens: int | None) -> KVPeak | None:
    """As admission reserves: input and predicted output of what runs, and no more than there is."""
    if not load.documents:
        return None
    there = kv_tokens or load.input_tokens + load.written_tokens
    num_calls = sum(number for number, _ in _calls(load, longest))
    together = min(float(running), num_calls)
    wanted, left = 0.0, together
    output = load.written_tokens / max(1.0, num_calls)
    for number, tokens in reversed(_calls(load, longest)):
        some = min(left, number)
        wanted += some * (tokens + output)
        left -= some
    return KVPeak(
        tokens=round(min(there, together * _mean_call(load, longest))),
        kv_tokens=kv_tokens,
        sequences=round(together),
        most_wanted=round(wanted),
    )


def _kv_tokens(runs: Sequence[RunRecord]) -> int | None:
    """Of the engine, as the newest run that loaded it was given them."""
    return next((run.limits["kv_tokens"] for run in reversed(runs) if run.limits), None)
