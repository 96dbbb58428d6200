"""The last runs of a corpus, beside each other."""

from dataclasses import dataclass

from batchrun.insight.cost import bill_of
from batchrun.insight.facts import RunFacts
from batchrun.insight.phases import whole_seconds
from batchrun.run_record import RunRecord, RunState


@dataclass(frozen=True, kw_only=True)
class Night:
    """Another run of the same job and corpus, or this one."""

    run_id: str
    started_at: str
    state: RunState
    computed: int
    reused: int
    failed: int
    machine_seconds: float
    documents_per_hour: float | None
    ceiling_share: float | None
    off_by: float | None
    cost: float | None


def night_of(facts: RunFacts, price_per_hour: float | None) -> Night:
    record, seconds = facts.record, whole_seconds(facts.record, has_own_clock=facts.has_own_clock)
    return Night(
        run_id=record.run_id,
        started_at=record.started_at,
        state=record.state,
        computed=record.rows.computed,
        reused=record.rows.reused,
        failed=record.rows.failed,
        machine_seconds=seconds,
        documents_per_hour=3600 * record.rows.computed / seconds if seconds else None,
        ceiling_share=record.metrics.ceiling_share,
        off_by=off_by(record),
        cost=bill_of(record, facts.job, seconds, price_per_hour).cost,
    )


def off_by(record: RunRecord) -> float | None:
    """By what share of the prediction the run took longer; None where not all of what was to run ran."""
    if not record.estimated_seconds or not record.to_run or record.rows.computed < record.to_run:
        return None
    return record.seconds.running / record.estimated_seconds - 1
