"""Rows of a run by what is said of them, also of one that published nothing."""

from dataclasses import replace

from batchrun.insight.facts import RunFacts, runs_of_job
from batchrun.run_record import RowCounts


def standing_rows(facts: RunFacts, planned: RowCounts | None) -> RowCounts:
    """As the run published them. Before that its record counts texts beside rows: then as plan and memo table have them
    now (`planned`), as a report does; and where they are gone, or a newer run has changed them, all of them by texts.
    """
    rows = facts.record.rows
    if rows.is_balanced:
        return rows
    if planned is not None and runs_of_job(facts)[-1].record.run_id == facts.record.run_id:
        counts = {name: getattr(planned, name) for name in ("total", "ok", "failed", "skipped", "pending")}
        return replace(rows, **counts)
    total = rows.total - rows.duplicate
    return replace(rows, total=total, pending=total - rows.ok - rows.failed - rows.skipped, duplicate=0)
