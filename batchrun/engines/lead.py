"""LEAD: the first tokens of the document as its summary, without weights.

It is the baseline of the summarization literature, and the engine that starts at once: with rates it
rehearses a night in real time, without them it measures what batchrun itself costs.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Collection
from typing import Annotated, Any

import msgspec
from msgspec import Meta

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
from batchrun.errors import EngineUnavailableError
from batchrun.records import Completion, ErrorType, FinishReason, Request

DEVICE = "cpu"
DTYPE = "none"
BLOCK_SIZE = 16
SLICE_SECONDS = 0.05
"""The longest that `step` sleeps, so that `close` and `abort` are answered."""


class LeadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`[engine.options]`: rates in tokens a second; without one its side costs no time."""

    prefill_tokens_per_s: Annotated[float, Meta(gt=0)] | None = None
    decode_tokens_per_s: Annotated[float, Meta(gt=0)] | None = None
    kv_tokens: Annotated[int, Meta(ge=1)] | None = None


class LeadEngine:
    """The Engine that returns `Request.document_span`'s first tokens, at most `max_tokens` of them.

    The outputs depend on the request alone. With a rate the requests are served one after the other in
    real time; without, a step finishes all that is queued, up to `max_num_seqs`. Raises
    EngineUnavailableError for an option it does not know.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.label = f"lead {batchrun.__version__} {DEVICE}"
        self._options = _read_options(config.options)
        self.limits = EngineLimits(
            max_model_len=config.max_model_len,
            kv_tokens=self._options.kv_tokens or config.max_num_seqs * config.max_model_len,
            block_size=BLOCK_SIZE,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
        )
        self._queue: OrderedDict[str, Request] = OrderedDict()
        self._rejected: dict[str, Completion] = {}
        self._queued_tokens = self._computed_tokens = self._output_tokens = 0
        self._free_at = 0.0
        self._closed = threading.Event()

    def add(self, request: Request) -> None:
        """Queue a request, or note why it is refused for the next `step`. Raises EngineDeadError if closed."""
        if self._closed.is_set():
            raise EngineDeadError("the engine is closed")
        if refused := self._refusal(request):
            self._rejected[request.request_id] = refused
            return
        if not self._queue:
            self._free_at = max(self._free_at, time.monotonic())
        self._queue[request.request_id] = request
        self._queued_tokens += len(request.prompt_token_ids)

    def step(self) -> list[Completion]:
        """Return what was refused, else what is served by now; sleeps for 50 ms at most."""
        if not self.has_unfinished():
            return []
        if self._rejected:
            refused, self._rejected = list(self._rejected.values()), {}
            return refused
        if self._is_throttled:
            return self._serve_in_time()
        return [self._serve_next() for _ in range(min(len(self._queue), self.limits.max_num_seqs))]

    def abort(self, request_ids: Collection[str]) -> None:
        """Forget requests; unknown ids are ignored."""
        for request_id in request_ids:
            self._rejected.pop(request_id, None)
            if request := self._queue.pop(request_id, None):
                self._queued_tokens -= len(request.prompt_token_ids)

    def has_unfinished(self) -> bool:
        """Whether `step` has something to return, now or later; not after `close`."""
        return bool(self._queue or self._rejected) and not self._closed.is_set()

    def snapshot(self) -> EngineSnapshot:
        """May be called from any thread."""
        running = min(len(self._queue), self.limits.max_num_seqs)
        return EngineSnapshot(
            running=running,
            waiting=len(self._queue) - running,
            kv_cache_usage=min(1.0, self._queued_tokens / self.limits.kv_tokens),
            computed_tokens=self._computed_tokens,
            output_tokens=self._output_tokens,
        )

    def close(self) -> None:
        """End at once, and wake a `step` that sleeps."""
        self._closed.set()

    @property
    def process_ids(self) -> list[int]:
        """It has no processes of its own."""
        return []

    @property
    def _is_throttled(self) -> bool:
        return bool(self._options.prefill_tokens_per_s or self._options.decode_tokens_per_s)

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

    def _serve_in_time(self) -> list[Completion]:
        until = min(time.monotonic() + SLICE_SECONDS, self._next_done_at())
        self._closed.wait(max(0.0, until - time.monotonic()))
        served = []
        while self._queue and self._next_done_at() <= time.monotonic():
            self._free_at = self._next_done_at()
            served.append(self._serve_next())
        return served

    def _next_done_at(self) -> float:
        request = next(iter(self._queue.values()))
        prefill, decode = self._options.prefill_tokens_per_s, self._options.decode_tokens_per_s
        seconds = len(request.prompt_token_ids) / prefill if prefill else 0.0
        return self._free_at + seconds + (self._num_output_tokens(request) / decode if decode else 0.0)

    def _serve_next(self) -> Completion:
        request_id, request = self._queue.popitem(last=False)
        start, end = request.document_span
        num_output = self._num_output_tokens(request)
        input_tokens = len(request.prompt_token_ids)
        self._queued_tokens -= input_tokens
        self._computed_tokens += input_tokens
        self._output_tokens += num_output
        return Completion(
            request_id=request_id,
            token_ids=request.prompt_token_ids[start : start + num_output],
            finish_reason=FinishReason.LENGTH if num_output < end - start else FinishReason.STOP,
            input_tokens=input_tokens,
        )

    def _num_output_tokens(self, request: Request) -> int:
        start, end = request.document_span
        return min(end - start, request.max_tokens, self.limits.max_model_len - len(request.prompt_token_ids))


def _read_options(options: dict[str, Any]) -> LeadOptions:
    check_options("lead", options, LeadOptions.__struct_fields__)
    try:
        return msgspec.convert(options, LeadOptions)
    except msgspec.ValidationError as error:
        reason = f"[engine.options] of the lead engine: {error}"
        raise EngineUnavailableError(reason, "Correct the value in the job spec.") from error
