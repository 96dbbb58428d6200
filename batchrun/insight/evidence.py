"""What a diagnosis rests on: one record of a run, read from its record, timeline and request telemetry."""

from dataclasses import dataclass, replace
from typing import Any

from batchrun.database import Database, DatabaseError, OutOfMemory, literal, statements
from batchrun.insight.ceiling import doubt_of_run
from batchrun.insight.division import UNDIVIDED, Division, divide, mean_input
from batchrun.insight.facts import RunFacts
from batchrun.insight.percentiles import Group, percentiles
from batchrun.insight.time_use import TimeUse, time_use
from batchrun.run_record import RunRecord
from batchrun.spec import JobSpec

FEWEST_TOKENS = 16
"""Output tokens of a request from which the median of its intervals says something."""
LONG_PROMPT = 4096
"""Tokens of a prompt that is long beside others, where half of a step's budget is not less."""


@dataclass(frozen=True, kw_only=True)
class Requests:
    """Of all requests that did not fail, of which there is one or more; `num_timed` have the engine's times. Together
    they made `num_outputs`: several are slices of one.

    `input_tokens_of_a_token`: of the prompt that a prompt token stands in, the mean over tokens. `preempted_tokens`:
    what preemptions threw away, each a prompt and half of its output. `held_tokens`: 90 % hold no more of the KV cache
    at their end. `long_output_tokens`: 95 % of outputs have no more. `longest_seconds`: of an output, all of its
    slices; 0 where no request has times. `last_…`: of the output that ended last.
    """

    num_requests: int
    num_timed: int
    num_outputs: int
    input_tokens_of_a_token: float
    num_preempted: int
    preempted_tokens: float
    held_tokens: float
    median_input_tokens: float
    median_output_tokens: float
    long_output_tokens: float
    longest_seconds: float
    last_output_tokens: int
    last_input_tokens: int
    last_is_nested: bool


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Of `num_requests` whose intervals were taken, `num_beside` of which wrote while one of `num_long` prompts of
    `long_prompt` tokens or more was read. `itl_p50` is the median over them, in ms; `waited_share` is
    what they waited above the median interval, of the time in which they wrote.

    `ms_a_prompt`: what a request waited more for each long prompt beside it, by least squares over them, with its
    `r2`; `prompts_per_ms`: of such prompts in the time in which they wrote.
    """

    num_requests: int = 0
    num_beside: int = 0
    itl_p50: float = 0.0
    waited_share: float = 0.0
    prompts_per_ms: float = 0.0
    ms_a_prompt: float = 0.0
    r2: float = 0.0
    num_long: int = 0
    long_prefill_ms: float = 0.0
    long_tokens: float = 0.0

    def chunk_ms(self, budget: int) -> float:
        """Of a step that reads as much of a long prompt as `budget` tokens hold."""
        return self.long_prefill_ms * min(1.0, budget / max(self.long_tokens, 1.0))

    @property
    def cost_ms(self) -> float:
        """Of a long prompt to each that writes beside it: no more than its own reading takes."""
        return max(0.0, min(self.ms_a_prompt, self.long_prefill_ms))

    @property
    def share(self) -> float:
        """Of the time in which outputs are written, what they wait for long prompts."""
        return min(self.waited_share, self.cost_ms * self.prompts_per_ms)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Of one run; `requests` is None where none is known; `long_prompt`: tokens from which a prompt is long beside others."""

    spec: JobSpec
    kind: str
    device: str
    record: RunRecord
    time: TimeUse | None
    division: Division = UNDIVIDED
    groups: tuple[Group, ...] = ()
    requests: Requests | None = None
    long_prompt: int = LONG_PROMPT
    beside: Beside = Beside()
    is_telemetry_lost: bool = False

    @property
    def max_num_seqs(self) -> int:
        return self.record.limits.get("max_num_seqs", self.spec.engine.max_num_seqs)

    @property
    def max_num_batched_tokens(self) -> int:
        return self.record.limits.get("max_num_batched_tokens", self.spec.engine.max_num_batched_tokens)

    @property
    def by_length(self) -> list[Group]:
        return [group for group in self.groups if group.concurrency is None]

    @property
    def by_concurrency(self) -> list[Group]:
        return [group for group in self.groups if group.length is None]

    @property
    def by_both(self) -> list[Group]:
        return [group for group in self.groups if group.length is not None and group.concurrency is not None]


def read_evidence(facts: RunFacts) -> Evidence:
    """All that a run has left; what is lost or was never there stands at its default."""
    record, spec, resolved = facts.record, facts.job.spec, facts.job.resolved
    evidence = Evidence(
        spec=spec,
        kind=resolved.kind if resolved else spec.engine.kind,
        device=resolved.device if resolved else "",
        record=record,
        time=None,
    )
    try:
        evidence = _with_requests(facts, evidence)
    except OutOfMemory:
        raise
    except DatabaseError:  # damaged, or of another version
        evidence = replace(evidence, is_telemetry_lost=True)
    timeline = facts.timeline
    division = divide(
        timeline,
        max_num_seqs=evidence.max_num_seqs,
        profile=record.profile,
        input_tokens=_input_tokens(evidence),
        has_own_clock=facts.has_own_clock,
        is_doubted=doubt_of_run(record, timeline) is not None,
    )
    return replace(evidence, time=time_use(division), division=division)


def _input_tokens(evidence: Evidence) -> float:
    """Of the prompt that a prompt token stands in; without requests the mean of a document, as the record has it."""
    if evidence.requests is not None and evidence.requests.input_tokens_of_a_token:
        return evidence.requests.input_tokens_of_a_token
    return mean_input(evidence.record)


def _with_requests(facts: RunFacts, evidence: Evidence) -> Evidence:
    long_prompt = max(1, min(LONG_PROMPT, evidence.max_num_batched_tokens // 2))
    asked = _ask(facts, "requests_in_all")
    return replace(
        evidence,
        groups=tuple(percentiles(facts.requests, facts.scratch)),
        requests=Requests(**asked) if asked.get("num_requests") else None,
        long_prompt=long_prompt,
        beside=Beside(**_ask(facts, "beside", long=long_prompt, enough=FEWEST_TOKENS)),
    )


def _ask(facts: RunFacts, name: str, **parameters: Any) -> dict[str, Any]:
    """The one row of a statement by its columns, those without a value left out; empty without telemetry."""
    files = [literal(path) for path in facts.requests]
    if not files:
        return {}
    with Database(facts.scratch) as database:
        asked = database.connection.execute(statements(__package__)[name], {"files": files, **parameters})
        names = [column[0] for column in asked.description]
        [row] = asked.fetchall()
    return {name: value for name, value in zip(names, row, strict=True) if value is not None}
