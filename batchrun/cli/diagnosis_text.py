"""A diagnosis as a person reads it."""

from batchrun.cli.layout import table, wrapped
from batchrun.insight.bottlenecks import findings, gaps, verdict
from batchrun.insight.evidence import Evidence
from batchrun.insight.finding import Finding
from batchrun.insight.percentiles import Group
from batchrun.insight.told import TIMES, times_table

INDENT = "   "


def render(evidence: Evidence) -> str:
    """The times of requests, what held the run up, and what can not be told."""
    record, found = evidence.record, findings(evidence)
    head = f"job {record.job_id}, run {record.run_id}, {record.told_state}: {_requests(evidence)}"
    parts = [
        wrapped(head, "", INDENT),
        _table("INPUT TOKENS", evidence.by_length),
        _table("RUNNING", evidence.by_concurrency),
        *(_said(number, finding) for number, finding in enumerate(found, 1)),
        [] if found else wrapped(verdict(evidence)),
        [line for gap in gaps(evidence) for line in wrapped(f"not told: {gap}", "", INDENT)],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _requests(evidence: Evidence) -> str:
    number = 0 if evidence.requests is None else evidence.requests.num_requests
    return f"{number:,} requests" + (f" on {evidence.record.engine}" if evidence.record.engine else "")


def _table(title: str, groups: list[Group]) -> list[str]:
    """Milliseconds, p50/p95/p99 of each; a percentile that too few requests have is a dash."""
    if not groups:
        return []
    head = [title, "REQUESTS", *(f"{name}, ms" for name in TIMES.values())]
    return table([head, *times_table(groups)], num_keys=2, left=())


def _said(number: int, finding: Finding) -> list[str]:
    share = "" if finding.share is None else f", {finding.share:.0%} of the time"
    return [
        f"{number}. {finding.name}{share}",
        *wrapped(finding.evidence, INDENT),
        *wrapped(f"→ {finding.action}", INDENT),
    ]
