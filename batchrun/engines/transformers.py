"""Hugging Face transformers on torch, on a CPU or a GPU: padded batches, for machines where vLLM does not install."""

import gc
import importlib.util
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from importlib import metadata

from msgspec.structs import replace

from batchrun.engines.base import (
    EngineConfig,
    EngineDeadError,
    EngineLimits,
    EngineSnapshot,
    kv_cache_refusal,
    refusal,
    request_times,
)
from batchrun.engines.hardware import cpu_dtype
from batchrun.engines.padded_batch import PaddedBatch
from batchrun.engines.padding import Room, choose_batch
from batchrun.engines.transformers_model import LoadedModel, load_model, prepare_environment
from batchrun.errors import EngineUnavailableError
from batchrun.records import Completion, ErrorType, Request

STEP_SECONDS = 0.2
"""How long a step decodes, so that `abort` and `close` are answered; a prefill is one step, however long."""
END_SECONDS = 8.0


def is_installed() -> bool:
    """Whether there are torch and transformers; neither is loaded."""
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "transformers"))


def require_installed() -> None:
    """Raise EngineUnavailableError, with the command that installs it, where something is missing."""
    if not is_installed():
        reason = "torch and transformers are not both installed"
        raise EngineUnavailableError(reason, "Install them: pip install 'batchrun[transformers]'")


def resolve_device_and_dtype(dtype: str) -> tuple[str, str]:
    """The device, `cpu` or `cuda`, and the dtype that `auto` is on it; it loads torch.

    On a GPU `auto` is bfloat16 from compute capability 8.0 on, else float16; for a CPU see `cpu_dtype`.
    """
    require_installed()
    prepare_environment()
    import torch

    if not torch.cuda.is_available():
        return "cpu", cpu_dtype() if dtype == "auto" else dtype
    best = "bfloat16" if torch.cuda.get_device_capability() >= (8, 0) else "float16"
    return "cuda", best if dtype == "auto" else dtype


class TransformersEngine:
    """The Engine on padded static batches, in this process.

    A batch is chosen from all that waits, so that lengths are alike; it runs until its last output has ended.
    A batch that does not fit the memory is tried again in halves, and so are all later ones; a request that
    does not fit alone comes back as an error. Raises EngineUnavailableError, with what was said, where the
    model does not load.
    """

    def __init__(self, config: EngineConfig) -> None:
        require_installed()
        prepare_environment()
        model, kv_tokens = load_model(config)
        self._model: LoadedModel | None = model
        self._vocabulary = model.vocabulary
        self.limits = _limits(config, kv_tokens)
        self._room = Room(
            batched_tokens=config.max_num_batched_tokens,
            kv_tokens=kv_tokens,
            num_seqs=config.max_num_seqs,
            edges=config.bucket_edges,
        )
        self.label = f"transformers {metadata.version('transformers')} {config.device} {config.dtype}"
        self._waiting: OrderedDict[str, Request] = OrderedDict()
        self._rejected: dict[str, Completion] = {}
        self._batch: PaddedBatch | None = None
        self._num_preemptions = self._computed_tokens = self._padded_tokens = self._output_tokens = 0
        self._num_steps = self._step_tokens = 0  # a step is a forward pass
        self._keeps_token_gaps = config.keeps_token_gaps
        self._queued_at: dict[str, float] = {}
        self._scheduled_at = 0.0  # of the batch, and then when each of its tokens came: all rows' at once
        self._token_times: list[float] = []
        self._death: str | None = None
        self._closed = threading.Event()
        self._using = threading.Lock()

    def add(self, request: Request) -> None:
        """Queue a request, or note why it is refused for the next `step`. Raises EngineDeadError."""
        self._require_alive()
        if refused := self._refusal(request):
            self._rejected[request.request_id] = refused
        else:
            self._waiting[request.request_id] = request
            self._queued_at[request.request_id] = time.monotonic()

    def step(self) -> list[Completion]:
        """Return what was refused, else compute the prompts of a batch, or decode the batch for a while."""
        if not self.has_unfinished():
            return []
        if self._rejected:
            refused, self._rejected = list(self._rejected.values()), {}
            return refused
        with self._using:
            if self._closed.is_set():
                return []
            self._require_alive()
            try:
                return self._run_on()
            except Exception as error:
                self._death = f"{type(error).__name__}: {error}"
                raise EngineDeadError(self._death) from error

    def abort(self, request_ids: Collection[str]) -> None:
        """Forget requests; unknown ids are ignored."""
        for request_id in request_ids:
            self._rejected.pop(request_id, None)
            self._waiting.pop(request_id, None)
            self._queued_at.pop(request_id, None)
        if batch := self._batch:
            batch.abort(request_ids)
            self._leave_if_ended()

    def has_unfinished(self) -> bool:
        """Whether `step` has something to return, now or later; not after `close`."""
        return bool(self._batch or self._waiting or self._rejected) and not self._closed.is_set()

    def snapshot(self) -> EngineSnapshot:
        """May be called from any thread."""
        batch = self._batch
        return EngineSnapshot(
            running=len(batch.running) if batch else 0,
            waiting=len(self._waiting),
            kv_cache_usage=min(1.0, batch.num_positions / self.limits.kv_tokens) if batch else 0.0,
            num_preemptions=self._num_preemptions,
            computed_tokens=self._computed_tokens,
            output_tokens=self._output_tokens,
            num_steps=self._num_steps,
            step_tokens=self._step_tokens,
            padded_tokens=self._padded_tokens,
        )

    def close(self) -> None:
        """Give the memory back, within seconds; idempotent, from any thread.

        A step under way ends after its present token. After eight seconds, which a long prefill can take, its
        memory is left to the end of this process.
        """
        self._closed.set()
        if self._using.acquire(timeout=END_SECONDS):
            self._batch = self._model = None
            _release_memory()
            self._using.release()

    @property
    def process_ids(self) -> list[int]:
        """It has no processes of its own."""
        return []

    def _require_alive(self) -> None:
        if self._closed.is_set():
            raise EngineDeadError("the engine is closed")
        if self._death is not None:
            raise EngineDeadError(self._death)

    def _refusal(self, request: Request) -> Completion | None:
        if refused := kv_cache_refusal(request, self.limits):
            return refused
        error = self._objection(request)
        return refusal(request, ErrorType.ENGINE_REJECTED, error) if error else None

    def _objection(self, request: Request) -> str | None:
        prompt, limit = request.prompt_token_ids, self.limits.max_model_len
        if not prompt:
            return "the prompt is empty"
        if len(prompt) >= limit:
            return f"the prompt has {len(prompt):,} tokens, which leaves no room in a context of {limit:,}"
        if request.max_tokens < 1:
            return f"max_tokens is {request.max_tokens}, but an output has at least one token"
        if not 0 <= min(prompt) <= max(prompt) < self._vocabulary:
            return (
                f"the prompt has a token that the model does not have, beyond 0 to {self._vocabulary - 1:,}"
            )
        return None

    def _run_on(self) -> list[Completion]:
        import torch

        with torch.inference_mode():
            return self._decode() if self._batch else self._begin()

    def _begin(self) -> list[Completion]:
        assert self._model is not None, "a closed engine does not begin"
        chosen = choose_batch(list(self._waiting.values()), self._room, self.limits.max_model_len)
        self._batch = batch = PaddedBatch(self._model, chosen, self.limits.max_model_len)
        for request in chosen:
            del self._waiting[request.request_id]
        self._scheduled_at, self._token_times = time.monotonic(), []
        return self._computed(batch, batch.prefill)

    def _decode(self) -> list[Completion]:
        until = time.monotonic() + STEP_SECONDS
        completions: list[Completion] = []
        while (batch := self._batch) and not completions and not self._closed.is_set():
            completions = self._computed(batch, batch.decode)
            if time.monotonic() >= until:
                break
        return completions

    def _computed(self, batch: PaddedBatch, compute: Callable[[], list[Completion]]) -> list[Completion]:
        """What ends with the next token of the batch; or what comes of it where the memory is short."""
        is_prefill, num_running = not batch.is_prefilled, len(batch.running)
        try:
            completions = compute()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        else:
            self._count(batch, num_running, is_prefill=is_prefill)
            self._leave_if_ended()
            self._token_times.append(time.monotonic())
            return [self._timed(completion) for completion in completions]
        self._batch = None
        return self._give_back(batch)

    def _timed(self, completion: Completion) -> Completion:
        times = request_times(
            queued_at=self._queued_at.pop(completion.request_id),
            scheduled_at=self._scheduled_at,
            token_times=self._token_times[: max(1, len(completion.token_ids))],
            keeps_gaps=self._keeps_token_gaps,
        )
        return replace(completion, times=times)

    def _count(self, batch: PaddedBatch, num_running: int, *, is_prefill: bool) -> None:
        if is_prefill:
            self._computed_tokens += batch.num_prompt_tokens
            self._padded_tokens += batch.num_positions - batch.num_prompt_tokens
        self._output_tokens += num_running
        self._num_steps += 1
        self._step_tokens = batch.num_prompt_tokens if is_prefill else num_running

    def _leave_if_ended(self) -> None:
        if self._batch and not self._batch.running:
            self._batch = None

    def _give_back(self, batch: PaddedBatch) -> list[Completion]:
        """Queue a batch that did not fit, before all others; there is less room from now on."""
        requests, num_rows, num_positions = batch.running, batch.num_rows, batch.num_positions
        batch.release()
        _release_memory()
        if num_rows == 1:
            for request in requests:
                del self._queued_at[request.request_id]
            error = f"{num_positions:,} tokens do not fit the memory that the model leaves"
            return [refusal(request, ErrorType.KV_CACHE_TOO_SMALL, error) for request in requests]
        if batch.is_prefilled:
            self._num_preemptions += len(requests)
            self._room = self._room.after_failed_decode(num_positions)
        else:
            self._room = self._room.after_failed_prefill(num_positions)
        for request in reversed(requests):
            self._waiting[request.request_id] = request
            self._waiting.move_to_end(request.request_id, last=False)
        return []


def is_out_of_memory(error: Exception) -> bool:
    """Whether torch found no memory. Its CPU allocator has no error of its own: there the text must tell."""
    import torch

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return "DefaultCPUAllocator: can't allocate memory" in str(error)


def _limits(config: EngineConfig, kv_tokens: int) -> EngineLimits:
    return EngineLimits(
        max_model_len=config.max_model_len,
        kv_tokens=kv_tokens,
        block_size=1,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        pads=True,
    )


def _release_memory() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
