"""What an engine is to the rest of the house."""

import difflib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from batchrun.errors import EngineUnavailableError
from batchrun.records import Completion, ErrorType, FinishReason, Request, RequestTimes


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The run that an engine is started for, and the lock that is held while it goes on."""

    run_id: str
    lock: Path


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """All that an engine is started with. `kind` and `dtype` are resolved, never `auto`.

    `keeps_token_gaps`: every request comes back with its `RequestTimes.token_gaps`; vLLM then takes 15 µs more for
    every token (`vllm_times`). `bucket_edges`: an engine that pads computes no prompts of two buckets together.
    """

    kind: str
    dtype: str
    device: str
    model: Path
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    samples: bool = False  # whether requests have a temperature
    speculation: str = "off"
    keeps_token_gaps: bool = False
    bucket_edges: tuple[int, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    owner: Owner | None = None

    def with_sequences(self, share: float) -> "EngineConfig":
        """With a share of `max_num_seqs`, at least one."""
        return replace(self, max_num_seqs=max(1, int(self.max_num_seqs * share)))


@dataclass(frozen=True, kw_only=True)
class EngineLimits:
    """`kv_tokens` and `block_size` in tokens; `pads`: whether a batch is padded to its longest prompt;
    `lookahead`: tokens that speculation writes ahead of an output; `shares_prefixes`: whether sequences that begin
    alike hold their common KV blocks together.
    """

    max_model_len: int
    kv_tokens: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    pads: bool = False
    lookahead: int = 0
    shares_prefixes: bool = True


@dataclass(frozen=True, kw_only=True)
class EngineSnapshot:
    """The engine now, and its counts since the start. `kv_cache_usage` is a share from 0 to 1, `step_tokens`
    those of the last step: prompt tokens read and output tokens written.

    `computed_tokens` are those of prompts; `padded_tokens` what was computed beside them to fill a batch up
    to its longest prompt.
    """

    running: int = 0
    waiting: int = 0
    kv_cache_usage: float = 0.0
    num_preemptions: int = 0
    computed_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    num_steps: int = 0
    step_tokens: int = 0
    padded_tokens: int = 0


class EngineDeadError(Exception):
    """The engine is gone; what was in flight is unattempted, not failed."""

    def __init__(self, reason: str, *, is_out_of_memory: bool = False) -> None:
        super().__init__(reason)
        self.is_out_of_memory = is_out_of_memory


class Engine(Protocol):
    """Driven by one thread. A request it refuses comes back from `step` as a completion with `ERROR`."""

    limits: EngineLimits
    label: str  # what made a row: name, version, device, dtype

    @property
    def process_ids(self) -> list[int]:
        """The engine's own processes, also those that have ended."""

    def add(self, request: Request) -> None:
        """Queue a request; its id must not be in the engine already. Raises EngineDeadError."""

    def step(self) -> list[Completion]:
        """Run the engine on; may be empty. With nothing to do it returns at once. Raises EngineDeadError."""

    def abort(self, request_ids: Collection[str]) -> None:
        """Forget requests; no completion of theirs is returned afterwards. Unknown ids are ignored."""

    def has_unfinished(self) -> bool:
        """Whether a request is queued, running or refused; nothing is after `close`."""

    def snapshot(self) -> EngineSnapshot:
        """May be called from any thread."""

    def close(self) -> None:
        """End within seconds, leave no process behind; may be called twice, and from any thread."""


def clock_of(engine: Engine) -> Callable[[], float]:
    """The engine's own clock, of a simulator whose time is virtual; else the machine's monotonic one. Seconds."""
    clock: Callable[[], float] = getattr(engine, "clock", time.monotonic)
    return clock


def request_times(
    *,
    queued_at: float,
    scheduled_at: float,
    token_times: Sequence[float],
    num_preemptions: int = 0,
    keeps_gaps: bool = False,
) -> RequestTimes:
    """Of a request whose tokens came at `token_times`, at least one; seconds of one clock."""
    gaps = np.diff(token_times)
    p50, p95 = itl_percentiles(gaps)
    return RequestTimes(
        queued_at=queued_at,
        scheduled_at=scheduled_at,
        first_token_at=token_times[0],
        last_token_at=token_times[-1],
        itl_p50=p50,
        itl_p95=p95,
        token_gaps=tuple(gaps.tolist()) if keeps_gaps else (),
        num_preemptions=num_preemptions,
    )


def itl_percentiles(gaps: ArrayLike) -> tuple[float, float] | tuple[None, None]:
    """The median and the 95th percentile of gaps between tokens, interpolated; None where there is no gap."""
    values = np.asarray(gaps)
    if not values.size:
        return None, None
    p50, p95 = np.percentile(values, [50, 95]).tolist()
    return p50, p95


def refusal(request: Request, error_type: ErrorType, error: str) -> Completion:
    """What `step` returns for a request that the engine did not take."""
    return Completion(
        request_id=request.request_id,
        token_ids=[],
        finish_reason=FinishReason.ERROR,
        input_tokens=len(request.prompt_token_ids),
        error_type=error_type,
        error=error,
    )


def kv_cache_refusal(request: Request, limits: EngineLimits) -> Completion | None:
    """The refusal of a prompt that fits the context and not the KV cache, where it could never be computed."""
    num_tokens = len(request.prompt_token_ids)
    if num_tokens >= limits.max_model_len or num_tokens <= limits.kv_tokens:
        return None
    error = f"the prompt has {num_tokens:,} tokens, the KV cache holds {limits.kv_tokens:,}"
    return refusal(request, ErrorType.KV_CACHE_TOO_SMALL, error)


def check_options(kind: str, options: Collection[str], known: Collection[str]) -> None:
    """Raise EngineUnavailableError for the first option that is not `known`, naming the nearest that is."""
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"Did you mean {close[0]!r}?" if close else "Remove it."
            raise EngineUnavailableError(f"[engine.options]: the {kind} engine has no option {name!r}", hint)
