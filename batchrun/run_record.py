"""The record of a run: what it was of, how far it is, what it took. Frozen, keyword-only; changed by copy."""

from dataclasses import dataclass, field, fields
from enum import StrEnum

from batchrun.profile import Profile
from batchrun.shard import CorpusName, Shard


class RunState(StrEnum):
    """`RUNNING` is believed only while the run's lock is held."""

    RUNNING = "running"
    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class RowCounts:
    """Every input row once: `total = ok + failed + skipped + pending`, and before publication
    `total = skipped + unusable + duplicate + reused + to_run`.

    `departed` is no part of the total: distinct texts that were in the corpus at the last completed run and
    are not any more, a changed text among them.
    """

    total: int = 0
    ok: int = 0
    failed: int = 0
    skipped: int = 0
    pending: int = 0
    reused: int = 0
    duplicate: int = 0
    computed: int = 0
    departed: int = 0

    def __add__(self, other: "RowCounts") -> "RowCounts":
        return RowCounts(
            **{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        )

    @property
    def is_balanced(self) -> bool:
        """Whether every row has exactly one status."""
        return self.total == self.ok + self.failed + self.skipped + self.pending


@dataclass(frozen=True, kw_only=True)
class TokenCounts:
    """Tokens of the calls that ended in this run: prompts, outputs (slices of earlier runs among them), prompt tokens
    taken from the prefix cache; and what was computed again, as the engine counts it: vLLM does not count what it
    reads again after a preemption, so that it is not in `recomputed` there.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    recomputed: int = 0


@dataclass(frozen=True, kw_only=True)
class PhaseSeconds:
    total: float = 0.0
    planning: float = 0.0
    loading: float = 0.0
    running: float = 0.0
    publishing: float = 0.0


@dataclass(frozen=True, kw_only=True)
class BatchMetrics:
    """The batch completion metrics: they describe the job, and are what an autoscaler may read.

    `padding_share`: of the prompt tokens computed, those that only filled a batch up to its longest prompt.
    """

    waiting_prefill_tokens: int = 0
    running_decode_sequences: int = 0
    kv_cache_usage: float = 0.0
    num_preemptions: int = 0
    padding_share: float = 0.0
    prefill_tokens_per_second: float = 0.0
    decode_tokens_per_second: float = 0.0
    oldest_wait_seconds: float = 0.0
    seconds_to_completion: float | None = None
    slack_seconds: float | None = None  # by which it ends before its window does; None without a window
    ceiling_share: float | None = None  # of what the engine's profile says can be reached; None without one
    store_wait_seconds: float = 0.0
    collector_wait_seconds: float = 0.0
    num_steps: int = 0
    num_engine_deaths: int = 0
    starved_steps: int = 0  # under their token budget while there was work for them
    idle_seconds: float = 0.0  # in which the engine had nothing to compute
    num_slices: int = 0  # of outputs that went on after them
    peak_memory_bytes: int = 0
    cpu_seconds: dict[str, float] = field(
        default_factory=dict
    )  # of the worker's threads, once they have ended
    gpu_utilization: float | None = None  # a share, the mean over the run's GPUs and its time; None without
    gpu_memory_bytes: int | None = None  # the most in use on them together, whoever uses it


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One submission of a corpus, or of a shard of it, to a job, as it stands; rewritten while the run goes on.

    `rows` of a shard are its own. A shard has no `output`, and `whole_id` is the id of the corpus it is a share of.
    """

    job_id: str
    run_id: str
    seed: int
    corpus_id: str
    corpus: list[str]
    state: RunState
    shard: Shard | None = None
    whole_id: str | None = None
    stop_reason: str | None = None
    exit_code: int | None = None
    output: str | None = None
    engine: str | None = None
    pid: int = 0
    host: str = ""
    started_at: str = ""
    updated_at: str = ""
    number: int = 0  # rises from run to run of a job, whatever the clock says; 0: of an older version
    first_planned_at: str | None = None
    window_ends_at: str | None = None  # by its deadline or its time budget
    compared_with: str | None = None  # the completed run that `rows.departed` counts from
    to_run: int = 0
    to_run_tokens: int | None = None  # prompt tokens of all calls, as planned; None: of an older version
    estimated_seconds: float | None = None  # of `seconds.running`, as foretold before the run
    rows: RowCounts = field(default_factory=RowCounts)
    tokens: TokenCounts = field(default_factory=TokenCounts)
    seconds: PhaseSeconds = field(default_factory=PhaseSeconds)
    metrics: BatchMetrics = field(default_factory=BatchMetrics)
    flagged: dict[str, int] = field(default_factory=dict)  # summaries of this run by flag
    warnings: list[str] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)  # the engine's own, as it gave them
    profile: Profile | None = None  # what the run was foretold by, and is held against
    release: str | None = (
        None  # what who submitted calls this state of model, spec and machine; nothing depends on it
    )

    @property
    def told_state(self) -> str:
        """The state, with the reason why it ended where there is one."""
        return self.state + (f" ({self.stop_reason})" if self.stop_reason else "")

    @property
    def corpus_name(self) -> CorpusName:
        return CorpusName(
            corpus_id=self.corpus_id, corpus=self.corpus, shard=self.shard, whole_id=self.whole_id
        )
