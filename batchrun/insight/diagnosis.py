"""What held a run up, as its report has it: findings, and the times of requests that they rest on."""

from dataclasses import dataclass

from batchrun.insight.bottlenecks import findings, gaps, verdict
from batchrun.insight.evidence import Evidence
from batchrun.insight.finding import Finding
from batchrun.insight.percentiles import Group


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """`verdict` is said where there are no findings; `not_told`: what there was too little to tell."""

    findings: tuple[Finding, ...]
    verdict: str
    not_told: tuple[str, ...]
    by_length: tuple[Group, ...]
    by_concurrency: tuple[Group, ...]


def diagnosis_of(evidence: Evidence) -> Diagnosis:
    """Of a run, as `batchrun report --diagnose` tells it."""
    return Diagnosis(
        findings=tuple(findings(evidence)),
        verdict=verdict(evidence),
        not_told=tuple(gaps(evidence)),
        by_length=tuple(evidence.by_length),
        by_concurrency=tuple(evidence.by_concurrency),
    )
