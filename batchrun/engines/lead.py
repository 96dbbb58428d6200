"""LEAD: the first tokens of the document as its summary, without weights.

It is the baseline of the summarization literature, and the engine that starts at once. Without options it
measures what batchrun itself costs. With rates, or lengths of outputs, it is a simulator (`simulator.py`) that
rehearses a night: in real time, or on a clock of its own where nobody wants to wait.
"""

import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

import batchrun
from batchrun.engines.base import (
    EngineConfig,
    EngineDeadError,
    EngineLimits,
    EngineSnapshot,
    check_options,
    kv_cache_refusal,
    refusal,
)
from batchrun.engines.output_lengths import lognormal_length
from batchrun.engines.simulator import ProfileRates, Rates, Simulated, Simulator, StepTime
from batchrun.errors import EngineUnavailableError
from batchrun.profile import Profile
from batchrun.records import Completion, ErrorType, FinishReason, Request

DEVICE = "cpu"
DTYPE = "none"
BLOCK_SIZE = 16
"""Tokens of a KV block, vLLM's on a GPU."""
SLICE_SECONDS = 0.05
"""The longest that `step` sleeps, so that `close` and `abort` are answered."""

Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]


class LeadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`[engine.options]`: rates in tokens a second; a side without one costs no time.

    `profile` is a file that `batchrun calibrate` wrote, whose rates take the place of these. `decode_half_batch`: the running sequences at which half of `decode_tokens_per_s` is reached.
    `output_tokens`: the median of output lengths, which are lognormal with `output_sigma`; without it an output
    is as long as its document and `max_tokens` allow. `prefix_caching` is what vLLM calls so.
    """

    prefill_tokens_per_s: Positive | None = None
    decode_tokens_per_s: Positive | None = None
    decode_half_batch: Annotated[float, Meta(ge=0)] = 0.0
    profile: str | None = None
    kv_tokens: Count | None = None
    block_size: Count = BLOCK_SIZE
    prefix_caching: bool = True
    output_tokens: Positive | None = None
    output_sigma: Annotated[float, Meta(ge=0)] = 0.5
    output_seed: Annotated[int, Meta(ge=0)] = 0
    clock: Literal["real", "virtual"] = "real"

    @property
    def simulates(self) -> bool:
        rates = self.prefill_tokens_per_s or self.decode_tokens_per_s or self.profile
        return bool(rates or self.output_tokens)

    @property
    def rates(self) -> StepTime:
        """Raises EngineUnavailableError where the profile can not be read."""
        if self.profile is not None:
            return ProfileRates(profile=_read_profile(Path(self.profile)))
        return Rates(
            prefill=self.prefill_tokens_per_s,
            decode=self.decode_tokens_per_s,
            half_batch=self.decode_half_batch,
        )


class LeadEngine:
    """The Engine that returns `Request.document_span`'s first tokens, at most `max_tokens` of them.

    The outputs depend on the request alone. Without rates a step finishes all that is queued, up to
    `max_num_seqs`. Raises EngineUnavailableError for an option it does not know.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.label = f"lead {batchrun.__version__} {DEVICE}"
        self._options = _read_options(config.options)
        self._keeps_token_gaps = config.keeps_token_gaps
        self.limits = EngineLimits(
            max_model_len=config.max_model_len,
            kv_tokens=self._kv_tokens(config),
            block_size=self._options.block_size,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            shares_prefixes=self._options.prefix_caching,
        )
        self._queue: OrderedDict[str, Request] = OrderedDict()
        self._rejected: dict[str, Completion] = {}
        self._queued_tokens = self._computed_tokens = self._output_tokens = 0
        self._num_steps = self._step_tokens = 0
        self.simulator = self._make_simulator() if self._options.simulates else None
        self._started = 0.0  # of the real clock, at the simulation's 0
        self._due: list[Simulated] = []  # finished in the simulation, and not yet by the real clock
        self._closed = threading.Event()

    def add(self, request: Request) -> None:
        """Queue a request, or note why it is refused for the next `step`. Raises EngineDeadError if closed."""
        if self._closed.is_set():
            raise EngineDeadError("the engine is closed")
        if refused := self._refusal(request):
            self._rejected[request.request_id] = refused
            return
        if self.simulator:
            if not self._queue:
                self._started = time.monotonic() - self.simulator.counts.seconds
            output = self._output(request)
            self.simulator.add(request.request_id, request.prompt_token_ids, output)
        self._queue[request.request_id] = request
        self._queued_tokens += len(request.prompt_token_ids)

    def step(self) -> list[Completion]:
        """Return what was refused, else what is finished by now; sleeps for 50 ms at most."""
        if not self.has_unfinished():
            return []
        if self._rejected:
            refused, self._rejected = list(self._rejected.values()), {}
            return refused
        if self.simulator is None:
            return self._serve_all()
        if self._options.clock == "virtual":
            return [self._finished(one) for one in self.simulator.step()]
        return self._step_in_time(self.simulator)

    def abort(self, request_ids: Collection[str]) -> None:
        """Forget requests; unknown ids are ignored."""
        for request_id in request_ids:
            self._rejected.pop(request_id, None)
            if request := self._queue.pop(request_id, None):
                self._queued_tokens -= len(request.prompt_token_ids)
        if self.simulator:
            self.simulator.abort(request_ids)
            self._due = [one for one in self._due if one.request_id not in request_ids]

    def has_unfinished(self) -> bool:
        """Whether `step` has something to return, now or later; not after `close`."""
        return bool(self._queue or self._rejected) and not self._closed.is_set()

    def clock(self) -> float:
        """The time in seconds by which the engine works: the machine's monotonic clock, or its own."""
        if self.simulator and self._options.clock == "virtual":
            return self.simulator.counts.seconds
        return time.monotonic()

    def snapshot(self) -> EngineSnapshot:
        """May be called from any thread."""
        if self.simulator:
            return _snapshot(self.simulator)
        running = min(len(self._queue), self.limits.max_num_seqs)
        return EngineSnapshot(
            running=running,
            waiting=len(self._queue) - running,
            kv_cache_usage=min(1.0, self._queued_tokens / self.limits.kv_tokens),
            computed_tokens=self._computed_tokens,
            output_tokens=self._output_tokens,
            num_steps=self._num_steps,
            step_tokens=self._step_tokens,
        )

    def close(self) -> None:
        """End at once, and wake a `step` that sleeps."""
        self._closed.set()

    @property
    def process_ids(self) -> list[int]:
        """It has no processes of its own."""
        return []

    def _refusal(self, request: Request) -> Completion | None:
        num_tokens, limit = len(request.prompt_token_ids), self.limits.max_model_len
        if not num_tokens:
            return refusal(request, ErrorType.ENGINE_REJECTED, "the prompt is empty")
        if num_tokens >= limit:
            error = f"the prompt has {num_tokens:,} tokens, which leaves no room in a context of {limit:,}"
            return refusal(request, ErrorType.ENGINE_REJECTED, error)
        if request.max_tokens < 1:
            error = f"max_tokens is {request.max_tokens}, but an output has at least one token"
            return refusal(request, ErrorType.ENGINE_REJECTED, error)
        return kv_cache_refusal(request, self.limits)

    def _step_in_time(self, simulator: Simulator) -> list[Completion]:
        """Simulate as far as the real clock is; where a step ends later, wait for it a while."""
        self._closed.wait(min(SLICE_SECONDS, max(0.0, self._ahead(simulator))))
        while not self._due and self._ahead(simulator) <= 0 and simulator.has_unfinished:
            self._due = simulator.step()
        if self._ahead(simulator) > 0:
            return []
        due, self._due = self._due, []
        return [self._finished(one) for one in due]

    def _ahead(self, simulator: Simulator) -> float:
        """Seconds by which the simulation is ahead of the real clock."""
        return self._started + simulator.counts.seconds - time.monotonic()

    def _finished(self, one: Simulated) -> Completion:
        completion = self._completion(
            self._queue.pop(one.request_id), list(one.token_ids[one.num_prompt :]), one.num_cached
        )
        return replace(completion, times=one.times(keeps_gaps=self._keeps_token_gaps))

    def _serve_all(self) -> list[Completion]:
        served = [self._serve_next() for _ in range(min(len(self._queue), self.limits.max_num_seqs))]
        self._num_steps += 1
        self._step_tokens = sum(one.input_tokens + len(one.token_ids) for one in served)
        return served

    def _serve_next(self) -> Completion:
        _, request = self._queue.popitem(last=False)
        return self._completion(request, self._output(request), 0)

    def _completion(self, request: Request, output: list[int], cached_tokens: int) -> Completion:
        input_tokens = len(request.prompt_token_ids)
        self._queued_tokens -= input_tokens
        self._computed_tokens += input_tokens
        self._output_tokens += len(output)
        is_whole = request.num_generated + len(output) >= self._num_wanted(request)
        return Completion(
            request_id=request.request_id,
            token_ids=output,
            finish_reason=FinishReason.STOP if is_whole else FinishReason.LENGTH,
            input_tokens=input_tokens,
            cached_tokens=cached_tokens,
        )

    def _output(self, request: Request) -> list[int]:
        """The next tokens of the document, from where earlier slices of the output ended."""
        start, end = request.document_span
        first, num_input = request.num_generated, len(request.prompt_token_ids)
        room = min(self.limits.max_model_len, self.limits.kv_tokens) - num_input
        last = min(self._num_wanted(request), first + max(1, min(request.max_tokens, room)))
        if last <= end - start:
            return request.prompt_token_ids[start + first : start + last]
        return [request.prompt_token_ids[start + _wander(place, end - start)] for place in range(first, last)]

    def _num_wanted(self, request: Request) -> int:
        """Tokens of the whole output, if nothing cuts it."""
        start, end = request.document_span
        median, options = self._options.output_tokens, self._options
        if request.ignore_eos:
            return sys.maxsize
        if median is None:
            return end - start
        return lognormal_length(
            request.request_id, seed=options.output_seed, median=median, sigma=options.output_sigma
        )

    def _kv_tokens(self, config: EngineConfig) -> int:
        """A simulated cache is whole blocks: a sequence that fits its tokens and not its blocks would never end."""
        options = self._options
        kv_tokens = options.kv_tokens or config.max_num_seqs * config.max_model_len
        if not options.simulates:
            return kv_tokens
        return max(1, kv_tokens // options.block_size) * options.block_size

    def _make_simulator(self) -> Simulator:
        options, limits = self._options, self.limits
        return Simulator(
            rates=options.rates,
            kv_tokens=limits.kv_tokens,
            block_size=limits.block_size,
            max_num_seqs=limits.max_num_seqs,
            max_num_batched_tokens=limits.max_num_batched_tokens,
            prefix_caching=options.prefix_caching,
        )


def _wander(place: int, size: int) -> int:
    """Where in a document of `size` tokens an output longer than it finds its token: no loop that repeats."""
    return (place * 7919 + place // size * 104729) % size


def _snapshot(simulator: Simulator) -> EngineSnapshot:
    counts = simulator.counts
    return EngineSnapshot(
        running=simulator.num_running,
        waiting=simulator.num_waiting,
        kv_cache_usage=simulator.kv_cache_usage,
        num_preemptions=counts.preemptions,
        computed_tokens=counts.computed_tokens - counts.decode_tokens,
        cached_tokens=counts.cached_tokens,
        output_tokens=counts.output_tokens,
        num_steps=counts.steps,
        step_tokens=counts.step_tokens,
    )


def _read_profile(path: Path) -> Profile:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Profile)
    except (OSError, msgspec.MsgspecError) as error:
        reason = f"[engine.options] profile: {path.absolute()} can not be read: {error}"
        raise EngineUnavailableError(reason, "Name a file that `batchrun calibrate` wrote.") from error


def _read_options(options: dict[str, Any]) -> LeadOptions:
    check_options("lead", options, LeadOptions.__struct_fields__)
    try:
        return msgspec.convert(options, LeadOptions)
    except msgspec.ValidationError as error:
        reason = f"[engine.options] of the lead engine: {error}"
        raise EngineUnavailableError(reason, "Correct the value in the job spec.") from error
