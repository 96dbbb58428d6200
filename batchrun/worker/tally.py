"""What a run has come to: documents by status, the tokens of its calls, and how well the engine was fed."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from batchrun.records import MemoStatus, Summary

STAYS = 256
"""Of the last requests it is remembered how long they were in the engine."""


@dataclass
class Tally:
    """Counts of this run: documents by status and flag, and the tokens of the calls that it computed."""

    ok: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    flagged: Counter[str] = field(default_factory=Counter)

    @property
    def computed(self) -> int:
        return self.ok + self.failed

    def add_documents(self, rows: Iterable[Summary]) -> None:
        for row in rows:
            self.ok += row.status is MemoStatus.OK
            self.failed += row.status is MemoStatus.FAILED
            if row.flags:
                self.flagged.update(row.flags)

    def add_calls(self, rows: Iterable[Summary]) -> None:
        for row in rows:
            self.input_tokens += row.input_tokens
            self.output_tokens += row.output_tokens
            self.cached_tokens += row.cached_tokens


@dataclass
class FeedingTally:
    """`starved_steps`: steps under their token budget, while work was left and would have been let in.

    `idle_seconds`: in which the engine had nothing to compute, between the steps of one in this process, or
    because it held no request; what it does itself to take a request in is not counted. `stays`: seconds for which
    the last requests that ended were in the engine.
    """

    num_steps: int = 0
    starved_steps: int = 0
    idle_seconds: float = 0.0
    num_slices: int = 0
    kv_cache_usage_max: float = 0.0
    stays: deque[float] = field(default_factory=lambda: deque(maxlen=STAYS))
