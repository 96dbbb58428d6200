"""A finding: one thing that held a run up, with its evidence and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum

WORTH_SAYING = 0.1
"""Of the running time, lost in one way."""
MOST = 0.65
"""Of the running time, for one kind of work."""
MIN_REQUESTS = 20
"""Of a group, from which its median is compared with another's."""


class Bottleneck(StrEnum):
    """What a finding names."""

    PREFILL = "prefill"
    DECODE = "decode"
    INTERFERENCE = "interference"
    KV_CACHE = "kv cache"
    FEEDING = "feeding"
    PADDING = "padding"
    IDLE = "idle"
    TAIL = "tail"
    RECOMPUTATION = "recomputation"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`share` of the running time; None where the time can not be divided."""

    name: Bottleneck
    share: float | None
    evidence: str
    action: str
