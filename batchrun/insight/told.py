"""A diagnosis in words: percentiles by length of input and by concurrency, then what held the run up."""

import textwrap
from collections.abc import Sequence
from typing import Any

import msgspec

from batchrun.insight.bottlenecks import findings, gaps, verdict
from batchrun.insight.evidence import Evidence
from batchrun.insight.finding import Finding
from batchrun.insight.percentiles import Group, Quantiles

ENOUGH = {"p50": 5, "p95": 20, "p99": 100}
"""Requests of a group that have a time, from which a percentile of it is shown."""
WIDTH = 110
TIMES = {
    "queue_ms": "queue",
    "prefill_ms": "prefill",
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "itl_p50": "ITL p50",
    "itl_p95": "ITL p95",
}


def diagnosis_text(evidence: Evidence) -> str:
    """For a terminal."""
    record, found = evidence.record, findings(evidence)
    parts = [
        f"job {record.job_id}, run {record.run_id}, {record.told_state}: {_requests(evidence)}",
        _table("INPUT TOKENS", evidence.by_length),
        _table("RUNNING", evidence.by_concurrency),
        "\n\n".join(f"{number}. {_said(finding)}" for number, finding in enumerate(found, 1))
        or verdict(evidence),
        "\n".join(f"not told: {gap}" for gap in gaps(evidence)),
    ]
    return "\n\n".join(part for part in parts if part)


def diagnosis_plain(evidence: Evidence) -> dict[str, Any]:
    """The same as one object. Times in milliseconds, shares from 0 to 1."""
    record = evidence.record
    plain: dict[str, Any] = msgspec.to_builtins(
        {
            "job_id": record.job_id,
            "run_id": record.run_id,
            "state": record.state,
            "stop_reason": record.stop_reason,
            "ceiling_share": record.metrics.ceiling_share,
            "findings": findings(evidence),
            "not_told": gaps(evidence),
            "time": evidence.time,
            "by_length": evidence.by_length,
            "by_concurrency": evidence.by_concurrency,
        }
    )
    return plain


def _requests(evidence: Evidence) -> str:
    number = 0 if evidence.requests is None else evidence.requests.num_requests
    return f"{number:,} requests" + (f" on {evidence.record.engine}" if evidence.record.engine else "")


def times_table(groups: Sequence[Group]) -> list[list[str]]:
    """Rows of text: of each group its name, its requests and its times, p50/p95/p99 in milliseconds."""
    return [
        [_label(group), f"{group.num_requests:,}", *(_cell(group, name) for name in TIMES)]
        for group in groups
    ]


def _said(finding: Finding) -> str:
    share = "" if finding.share is None else f", {finding.share:.0%} of the time"
    return "\n".join(
        [f"{finding.name}{share}", _indented(finding.evidence), _indented(f"→ {finding.action}")]
    )


def _indented(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="   ", subsequent_indent="   ", break_on_hyphens=False)


def _table(title: str, groups: list[Group]) -> str:
    """Milliseconds, p50/p95/p99 of each; a percentile that too few requests have is a dash."""
    if not groups:
        return ""
    rows = [[title, "REQUESTS", *(f"{name}, ms" for name in TIMES.values())]]
    rows += times_table(groups)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    )


def _label(group: Group) -> str:
    return group.length or group.concurrency or ""


def _cell(group: Group, name: str) -> str:
    quantiles: Quantiles | None = getattr(group, name)
    if quantiles is None:
        return "-"
    number = group.num_of(name)
    shown = [_number(getattr(quantiles, each)) if number >= least else "-" for each, least in ENOUGH.items()]
    return "/".join(shown)


def _number(milliseconds: float) -> str:
    return f"{milliseconds:,.0f}" if milliseconds >= 10 else f"{milliseconds:.1f}"  # noqa: PLR2004 - two digits
