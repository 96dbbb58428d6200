"""Shares of the prompt tokens that a run computed, and of its time, as its evidence has them."""

from batchrun.insight.evidence import Evidence
from batchrun.insight.finding import WORTH_SAYING


def read_again(evidence: Evidence) -> float:
    """Of the prompt tokens that were computed, those that had been computed before."""
    tokens = evidence.record.tokens
    return tokens.recomputed / max(1, tokens.input - tokens.cached + tokens.recomputed)


def by_preemption(evidence: Evidence) -> float:
    """Of the prompt tokens that were computed, at most those that preemptions threw away."""
    tokens = evidence.record.tokens
    thrown = min(evidence.requests.preempted_tokens, tokens.recomputed)
    return thrown / max(1, tokens.input - tokens.cached + tokens.recomputed)


def useful_reading(evidence: Evidence) -> float | None:
    """The share of the time in which prompts were read for the first time, without padding."""
    if evidence.time is None or evidence.time.reading is None:
        return None
    padded = evidence.record.metrics.padding_share
    return evidence.time.reading * (1 - padded) * (1 - read_again(evidence))


def of_reading(evidence: Evidence, part: float) -> float | None:
    """The share of the time that such a part of the reading took."""
    return None if evidence.time is None or evidence.time.reading is None else evidence.time.reading * part


def is_worth(share: float | None, part: float) -> bool:
    """Where the time can not be divided, twice as large a part of the tokens."""
    return part >= 2 * WORTH_SAYING if share is None else share >= WORTH_SAYING


def taken(what: str, share: float | None, evidence: Evidence) -> str:
    if share is None or evidence.time is None:
        return ""
    return f"{what} takes {share:.0%} of {evidence.time.seconds:,.0f} s (by the {evidence.time.basis}); "
