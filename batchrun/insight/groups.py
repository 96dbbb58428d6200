"""Groups of requests beside each other: whether a median grows from one to the next, and how that is said.

A median counts where `MIN_REQUESTS` of its group have the time that it is of.
"""

from batchrun.insight.evidence import Evidence
from batchrun.insight.finding import MIN_REQUESTS
from batchrun.insight.percentiles import Group, Quantiles

FLAT, GROWN = 1.5, 1.5
"""Factors between medians of groups: below, they are alike; from there on, one is more than the other."""


def _known(groups: list[Group], name: str) -> list[Group]:
    return [group for group in groups if group.num_of(name) >= MIN_REQUESTS and _median(group, name)]


def _median(group: Group, name: str) -> float:
    quantiles: Quantiles | None = getattr(group, name)
    return 0.0 if quantiles is None else quantiles.p50


def grows(groups: list[Group], name: str) -> bool:
    medians = [_median(group, name) for group in _known(groups, name)]
    return len(medians) > 1 and medians[-1] >= GROWN * medians[0]


def is_flat(groups: list[Group], name: str) -> bool:
    medians = [_median(group, name) for group in _known(groups, name)]
    return not medians or max(medians) < FLAT * min(medians)


def reads_longer(evidence: Evidence) -> bool:
    """Whether requests are read for longer than they write, in most groups by length."""
    groups = _known(evidence.by_length, "prefill_ms")
    longer = [
        group.num_prefill
        for group in groups
        if _median(group, "prefill_ms") > _median(group, "tpot_ms") * group.output_tokens
    ]
    return sum(longer) > sum(group.num_prefill for group in groups) / 2


def most_alike(evidence: Evidence) -> list[Group]:
    """Groups by concurrency of the one length that has the most requests with a `tpot_ms` in two groups or more."""
    lengths = dict.fromkeys(group.length for group in evidence.by_both)
    found = [
        _known([group for group in evidence.by_both if group.length == length], "tpot_ms")
        for length in lengths
    ]
    several = [groups for groups in found if len(groups) > 1]
    return max(several, key=lambda groups: sum(group.num_tpot for group in groups), default=[])


def growth_text(groups: list[Group], name: str, called: str) -> str:
    """From the first group to the last, with how many requests each median is of; empty where it does not grow."""
    return f"{called} p50 grows from {_ends(groups, name, ' to ')}" if grows(groups, name) else ""


def flat_text(groups: list[Group], name: str, called: str) -> str:
    """The same where it stays as it is; empty where it does not, or there are no two groups."""
    is_told = is_flat(groups, name) and len(_known(groups, name)) > 1
    return f"{called} p50 stays about the same, {_ends(groups, name, ' and ')}" if is_told else ""


def _ends(groups: list[Group], name: str, between: str) -> str:
    known = _known(groups, name)
    return between.join(
        f"{_median(group, name):,.0f} ms ({_labels(group)}, n={group.num_of(name):,})"
        for group in (known[0], known[-1])
    )


def _labels(group: Group) -> str:
    running = None if group.concurrency is None else f"{group.concurrency} running"
    return ", ".join(label for label in (group.length, running) if label)
