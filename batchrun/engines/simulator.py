"""An engine's time without its arithmetic: steps of a token budget, a KV cache in blocks, preemption.

It follows vLLM's scheduler (v1, first come first served): a step gives every running sequence its next
tokens, a prompt as many as the budget leaves (chunked prefill); then it lets waiting sequences in. Where no
block is left for one that runs, the one that came last is preempted: its blocks go, and it is computed again
from its start, or from what the cache still holds of it.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from batchrun.engines.base import request_times
from batchrun.engines.kv_blocks import KVBlocks, block_names
from batchrun.profile import Profile
from batchrun.records import RequestTimes


@dataclass(frozen=True, kw_only=True)
class Rates:
    """`prefill` and `decode` in tokens a second; None: no time at all.

    `decode` is what many sequences reach together, `half_batch` the number of them that reaches half of it,
    as n / (n + half_batch): few sequences wait for the weights to be read, many for the arithmetic.
    """

    prefill: float | None = None
    decode: float | None = None
    half_batch: float = 0.0

    def seconds(self, prefill_tokens: int, decode_sequences: int) -> float:
        """Of a step that reads so many prompt tokens and writes one token for each of so many sequences."""
        prefill = prefill_tokens / self.prefill if self.prefill else 0.0
        decode = (decode_sequences + self.half_batch) / self.decode if self.decode else 0.0
        return prefill + (decode if decode_sequences else 0.0)


class StepTime(Protocol):
    """How long steps take."""

    def seconds(self, prefill_tokens: int, decode_sequences: int) -> float:
        """Of a step that reads so many prompt tokens and writes one token for each of so many sequences."""


@dataclass(frozen=True, kw_only=True)
class ProfileRates:
    """The rates that `batchrun calibrate` measured: those of reading at the prompt tokens of a step."""

    profile: Profile

    def seconds(self, prefill_tokens: int, decode_sequences: int) -> float:
        """Reading and writing one after the other."""
        reading = self.profile.prefill_seconds(prefill_tokens) if prefill_tokens else 0.0
        writing = decode_sequences / self.profile.decode_rate(decode_sequences) if decode_sequences else 0.0
        return reading + writing


@dataclass(kw_only=True, slots=True, eq=False)
class Simulated:
    """A request under way. `num_tokens` are its prompt and its output so far, of which `num_computed` are in
    the cache; times are those of the simulation's clock, in seconds.
    """

    request_id: str
    token_ids: Sequence[int]  # the prompt, and the output that it will have
    num_prompt: int
    names: list[int]
    queued_at: float
    num_tokens: int
    num_computed: int = 0
    num_cached: int = 0
    num_preemptions: int = 0
    num_named: int = 0
    blocks: list[int] = field(default_factory=list)
    scheduled_at: float = 0.0
    token_times: list[float] = field(default_factory=list)

    @property
    def is_finished(self) -> bool:
        return self.num_tokens >= len(self.token_ids)

    def times(self, *, keeps_gaps: bool) -> RequestTimes:
        """Of one that is finished."""
        return request_times(
            queued_at=self.queued_at,
            scheduled_at=self.scheduled_at,
            token_times=self.token_times,
            num_preemptions=self.num_preemptions,
            keeps_gaps=keeps_gaps,
        )

    @property
    def num_missing(self) -> int:
        return self.num_tokens - self.num_computed


@dataclass(kw_only=True)
class SimulatedCounts:
    """Since the start. `computed_tokens` count a token again that is computed again; `cached_tokens` are those
    of prompts, of their first admission.
    """

    steps: int = 0
    step_tokens: int = 0  # of the last step
    seconds: float = 0.0
    computed_tokens: int = 0
    cached_tokens: int = 0
    decode_tokens: int = 0  # of those computed: outputs read for the next one
    recomputed_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0


class Simulator:
    """Steps of the scheduler; deterministic. `seconds` of the counts is its clock."""

    def __init__(
        self,
        *,
        rates: StepTime,
        kv_tokens: int,
        block_size: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        prefix_caching: bool,
    ) -> None:
        self._rates = rates
        self._block_size = block_size
        self._max_num_seqs = max_num_seqs
        self._budget = max_num_batched_tokens
        self._prefix_caching = prefix_caching
        self._blocks = KVBlocks(kv_tokens // block_size)
        self._running: list[Simulated] = []
        self._waiting: deque[Simulated] = deque()
        self.counts = SimulatedCounts()

    def add(self, request_id: str, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Queue a sequence that will read `prompt` and write `output`, of at least one token."""
        token_ids = [*prompt, *output]
        self._waiting.append(
            Simulated(
                request_id=request_id,
                token_ids=token_ids,
                num_prompt=len(prompt),
                names=block_names(token_ids, self._block_size) if self._prefix_caching else [],
                queued_at=self.counts.seconds,
                num_tokens=len(prompt),
            )
        )

    def abort(self, request_ids: Collection[str]) -> None:
        """Forget sequences, whatever they wait for."""
        self._waiting = deque(one for one in self._waiting if one.request_id not in request_ids)
        for one in [one for one in self._running if one.request_id in request_ids]:
            self._leave(one)

    @property
    def has_unfinished(self) -> bool:
        return bool(self._running or self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def kv_cache_usage(self) -> float:
        return self._blocks.usage

    def step(self) -> list[Simulated]:
        """One step of the scheduler; the sequences that it finished."""
        scheduled = self._schedule()
        decoding = sum(one.num_tokens > one.num_prompt and tokens == 1 for one, tokens in scheduled)
        total = sum(tokens for _, tokens in scheduled)
        counts = self.counts
        counts.steps += 1
        counts.step_tokens = total
        counts.computed_tokens += total
        counts.decode_tokens += decoding
        counts.seconds += self._rates.seconds(total - decoding, decoding)
        return [one for one, tokens in scheduled if self._advance(one, tokens)]

    def _schedule(self) -> list[tuple[Simulated, int]]:
        """Who computes how many tokens in this step, those that run first."""
        scheduled: list[tuple[Simulated, int]] = []
        left, preempted = self._budget, False
        place = 0
        while place < len(self._running) and left:
            one = self._running[place]
            tokens = min(one.num_missing, left)
            while not self._make_room(one, tokens):
                preempted = True
                last = self._running[-1]
                self._preempt(last)
                if last is one:
                    return scheduled
            scheduled.append((one, tokens))
            left -= tokens
            place += 1
        while self._waiting and left and not preempted and len(self._running) < self._max_num_seqs:
            tokens = self._let_in(self._waiting[0], left)
            if not tokens:
                break
            scheduled.append((self._waiting.popleft(), tokens))
            self._running.append(scheduled[-1][0])
            left -= tokens
        return scheduled

    def _make_room(self, one: Simulated, tokens: int) -> bool:
        needed = -(-(one.num_computed + tokens) // self._block_size) - len(one.blocks)
        if needed > 0:
            blocks = self._blocks.hold_new(needed)
            if blocks is None:
                return False
            one.blocks += blocks
        if self._prefix_caching:
            self._name_full(one, one.num_computed + tokens)
        return True

    def _name_full(self, one: Simulated, num_tokens: int) -> None:
        """Blocks are found by others from the moment in which their computation is scheduled, as in vLLM."""
        num_full = num_tokens // self._block_size
        for place in range(one.num_named, num_full):
            self._blocks.name(one.blocks[place], one.names[place])
        one.num_named = max(one.num_named, num_full)

    def _let_in(self, one: Simulated, left: int) -> int:
        """The tokens that a waiting sequence computes first, 0 where there is no room; at least its last
        token is computed, whatever the cache holds.
        """
        num_known = (one.num_tokens - 1) // self._block_size
        one.blocks = self._blocks.hold_named(one.names[:num_known])
        one.num_computed = one.num_named = len(one.blocks)
        one.num_computed *= self._block_size
        tokens = min(one.num_missing, left)
        if not self._make_room(one, tokens):
            self._blocks.release(one.blocks)
            one.blocks = []
            return 0
        if not one.num_preemptions:
            one.scheduled_at = self.counts.seconds
            one.num_cached = one.num_computed
            self.counts.cached_tokens += one.num_cached
        else:
            self.counts.recomputed_tokens += one.num_missing
        return tokens

    def _advance(self, one: Simulated, tokens: int) -> bool:
        """Count what a step computed of a sequence; whether it is finished."""
        one.num_computed += tokens
        if one.num_missing:
            return False
        one.num_tokens += 1
        one.token_times.append(self.counts.seconds)
        self.counts.output_tokens += 1
        if one.is_finished:
            self._leave(one)
        return one.is_finished

    def _leave(self, one: Simulated) -> None:
        self._running.remove(one)
        self._blocks.release(one.blocks)
        one.blocks = []

    def _preempt(self, one: Simulated) -> None:
        self._leave(one)
        one.num_computed = one.num_named = 0
        one.num_preemptions += 1
        self.counts.preemptions += 1
        self._waiting.appendleft(one)
