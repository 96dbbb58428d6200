"""Shares of the prompt tokens that a run computed, and of its time, as its evidence has them."""

from batchrun.insight.evidence import Evidence
from batchrun.insight.finding import WORTH_SAYING


def read_again(evidence: Evidence) -> float:
    """Of the prompt tokens that were computed, those that had been computed before."""
    return (evidence.record.tokens.recomputed + _uncounted(evidence)) / _computed(evidence)


def by_preemption(evidence: Evidence) -> float:
    """Of the prompt tokens that were computed, at most those that preemptions threw away."""
    requests, counted = evidence.requests, evidence.record.tokens.recomputed
    thrown = 0.0 if requests is None else requests.preempted_tokens
    return (_uncounted(evidence) or min(thrown, counted)) / _computed(evidence)


def _computed(evidence: Evidence) -> float:
    tokens = evidence.record.tokens
    return max(1.0, tokens.input - tokens.cached + tokens.recomputed + _uncounted(evidence))


def _uncounted(evidence: Evidence) -> float:
    """Tokens that preemptions threw away on an engine that does not count what it reads again for them: vLLM counts a
    prompt when it is first read alone. At most: blocks that are still in its prefix cache are not read again.
    """
    if evidence.kind != "vllm" or evidence.requests is None:
        return 0.0
    return evidence.requests.preempted_tokens


def useful_reading(evidence: Evidence) -> float | None:
    """The share of the time in which prompts were read for the first time, without padding."""
    return of_reading(evidence, 1 - read_again(evidence))


def of_reading(evidence: Evidence, part: float) -> float | None:
    """The share of the time that such a part of the prompt tokens took, padding not among them."""
    whole = _reading(evidence)
    return None if whole is None else whole * (1 - evidence.record.metrics.padding_share) * part


def of_padding(evidence: Evidence) -> float | None:
    """The share of the time that padding took."""
    whole = _reading(evidence)
    return None if whole is None else whole * evidence.record.metrics.padding_share


def _reading(evidence: Evidence) -> float | None:
    return None if evidence.time is None else evidence.time.reading


def is_worth(share: float | None, part: float) -> bool:
    """Where the time can not be divided, twice as large a part of the tokens."""
    return part >= 2 * WORTH_SAYING if share is None else share >= WORTH_SAYING


def taken(what: str, share: float | None, evidence: Evidence) -> str:
    """The time of one kind of work in words; empty where it can not be told."""
    if share is None or evidence.time is None:
        return ""
    return f"{what} takes {share:.0%} of {evidence.time.seconds:,.0f} s (by the {evidence.time.basis})"


def counted(evidence: Evidence) -> list[str]:
    """The number of requests in words, where there are any."""
    return [] if evidence.requests is None else [f"n={evidence.requests.num_requests:,} requests"]
