"""Groups of requests beside each other: whether a median grows from one to the next, and how that is said."""

from batchrun.insight.evidence import Evidence
from batchrun.insight.finding import MIN_REQUESTS
from batchrun.insight.percentiles import Group, Quantiles

FLAT, GROWN = 1.5, 1.5
"""Factors between medians of groups: below, they are alike; from there on, one is more than the other."""


def enough(groups: list[Group]) -> list[Group]:
    return [group for group in groups if group.num_requests >= MIN_REQUESTS]


def _median(group: Group, name: str) -> float | None:
    quantiles: Quantiles | None = getattr(group, name)
    return None if quantiles is None else quantiles.p50


def _medians(groups: list[Group], name: str) -> list[float]:
    return [median for group in groups if (median := _median(group, name))]


def grows(groups: list[Group], name: str) -> bool:
    medians = _medians(groups, name)
    return len(medians) > 1 and medians[-1] >= GROWN * medians[0]


def is_flat(groups: list[Group], name: str) -> bool:
    medians = _medians(groups, name)
    return not medians or max(medians) < FLAT * min(medians)


def reads_longer(evidence: Evidence) -> bool:
    """Whether requests are read for longer than they write, in most groups by length."""
    groups = enough(evidence.by_length)
    longer = [
        group.num_requests
        for group in groups
        if (_median(group, "prefill_ms") or 0.0) > (_median(group, "tpot_ms") or 0.0) * group.output_tokens
    ]
    return sum(longer) > sum(group.num_requests for group in groups) / 2


def most_alike(evidence: Evidence) -> list[Group]:
    """Groups by concurrency of the one length that has the most requests in two groups or more."""
    lengths = dict.fromkeys(group.length for group in evidence.by_both)
    found = [enough([group for group in evidence.by_both if group.length == length]) for length in lengths]
    several = [groups for groups in found if len(groups) > 1]
    return max(several, key=lambda groups: sum(group.num_requests for group in groups), default=[])


def spread(groups: list[Group], name: str, called: str) -> str:
    """From the first group to the last, with their numbers of requests; empty without two."""
    ends = [group for group in groups if _median(group, name) is not None]
    if len(ends) < 2:  # noqa: PLR2004 - nothing to compare
        return ""
    first, last = (
        f"{_median(group, name):,.0f} ms ({_labels(group)}, n={group.num_requests:,})"
        for group in (ends[0], ends[-1])
    )
    return f"{called} p50 goes from {first} to {last}"


def _labels(group: Group) -> str:
    running = None if group.concurrency is None else f"{group.concurrency} running"
    return ", ".join(label for label in (group.length, running) if label)
