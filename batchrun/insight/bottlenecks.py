"""What held a run up: rules over its evidence, each with a share of the running time and one thing to do.

Time that is lost is named first, by who lost it, and no second is named twice: idle, badly fed, at the tail, read
as padding, read again. What is left is the work itself. It is a bottleneck only where one side of it, reading or
writing, has `MOST` of the time: a run that reads and writes in balance at its ceiling has none.
"""

from collections.abc import Callable

from batchrun.insight import demands, losses
from batchrun.insight.evidence import Evidence, read_evidence
from batchrun.insight.facts import RunFacts
from batchrun.insight.finding import MIN_REQUESTS, Finding
from batchrun.run_record import RunRecord, RunState

RULES: tuple[Callable[[Evidence], Finding | None], ...] = (
    demands.prefill,
    demands.decode,
    demands.interference,
    losses.kv_cache,
    losses.feeding,
    losses.padding,
    losses.idle,
    losses.tail,
    losses.recomputation,
)


LONG_ENOUGH = 60.0
"""Seconds of running of which a timeline that is whole tells something."""


def diagnose(facts: RunFacts) -> list[Finding]:
    """Of a run: what held it up, the largest share of its time first; empty where nothing stands out."""
    return findings(read_evidence(facts))


def findings(evidence: Evidence) -> list[Finding]:
    """The same of what was read already."""
    found = [finding for rule in RULES if (finding := rule(evidence)) is not None]
    return sorted(found, key=lambda finding: -1.0 if finding.share is None else -finding.share)


def gaps(evidence: Evidence) -> list[str]:
    """What rules were silent for, because there was too little to tell."""
    if _had_no_work(evidence.record):
        return []
    said, time, requests = [], evidence.time, evidence.requests
    if time is None:
        said.append("the timeline has too few samples or steps: shares of the time are not told")
    elif time.reading is None:
        said.append(
            "reading and writing went on too evenly to be told apart; with a profile they are: batchrun calibrate"
        )
    if evidence.is_telemetry_lost:
        said.append("the files of request telemetry can not be read: they are damaged, or of another version")
    elif requests is None:
        said.append(
            "there is no telemetry of requests that ended: only what the record and the timeline have is told"
        )
    elif requests.num_timed < MIN_REQUESTS:
        said.append(f"{requests.num_timed:,} requests have times: groups are compared from {MIN_REQUESTS} on")
    elif evidence.beside.num_requests < MIN_REQUESTS:
        said.append(
            f"{evidence.beside.num_requests:,} requests have intervals between tokens: what long prompts cost others "
            f"is told from {MIN_REQUESTS} on"
        )
    return said


def verdict(evidence: Evidence) -> str:
    """What to say of a run in which nothing stands out, or too little is there to say so."""
    record = evidence.record
    if _had_no_work(record):
        return _no_work(record)
    if evidence.time is None:
        return _too_little(record)
    share = record.metrics.ceiling_share
    state = "" if record.state is not RunState.RUNNING else " so far"
    if evidence.time.reading is None:
        return f"no time was lost to anything else than reading and writing{state}; which of them has most of it is not known"
    if share is None:
        return f"nothing stands out{state}; how near the run was to its ceiling says a profile: batchrun calibrate"
    return f"nothing stands out{state}: the run was at {share:.0%} of the ceiling that its engine's profile gives"


def _had_no_work(record: RunRecord) -> bool:
    return record.state is RunState.COMPLETE and not record.to_run and not record.metrics.num_steps


def _no_work(record: RunRecord) -> str:
    rows = record.rows
    return (
        f"there was nothing to compute: of {rows.total:,} rows {rows.skipped:,} were skipped, {rows.ok:,} had a summary "
        f"already, {rows.failed:,} had failed for good"
    )


def _too_little(record: RunRecord) -> str:
    if record.state is RunState.COMPLETE and record.seconds.running >= LONG_ENOUGH:
        return "too little is left of the run's telemetry to tell what held it up"
    if record.state is RunState.COMPLETE:
        return "the run was too short to tell what held it up"
    return f"{record.told_state}: the run has computed too little to tell what held it up"
