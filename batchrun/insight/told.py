"""What page, terminal and JSON say of a diagnosis alike: percentiles by length of input and by concurrency."""

from collections.abc import Sequence
from typing import Any

import msgspec

from batchrun.insight.bottlenecks import findings, gaps
from batchrun.insight.evidence import Evidence
from batchrun.insight.percentiles import Group, Quantiles

ENOUGH = {"p50": 5, "p95": 20, "p99": 100}
"""Requests of a group that have a time, from which a percentile of it is shown."""
TIMES = {
    "queue_ms": "queue",
    "prefill_ms": "prefill",
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "itl_p50": "ITL p50",
    "itl_p95": "ITL p95",
}


def diagnosis_plain(evidence: Evidence) -> dict[str, Any]:
    """A diagnosis as one object. Times in milliseconds, shares from 0 to 1."""
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


def times_table(groups: Sequence[Group]) -> list[list[str]]:
    """Rows of text: of each group its name, its requests and its times, p50/p95/p99 in milliseconds."""
    return [
        [_label(group), f"{group.num_requests:,}", *(_cell(group, name) for name in TIMES)]
        for group in groups
    ]


def _label(group: Group) -> str:
    return group.length or group.concurrency or ""


def _cell(group: Group, name: str) -> str:
    quantiles: Quantiles | None = getattr(group, name)
    number = group.num_of(name)
    if quantiles is None or number < min(ENOUGH.values()):
        return "-"
    shown = [_number(getattr(quantiles, each)) if number >= least else "-" for each, least in ENOUGH.items()]
    return "/".join(shown)


def _number(milliseconds: float) -> str:
    return f"{milliseconds:,.0f}" if milliseconds >= 10 else f"{milliseconds:.1f}"  # noqa: PLR2004 - two digits
