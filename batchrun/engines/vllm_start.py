"""How vLLM is started: its environment, its arguments, and the counts that it reports."""

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from typing import Any

from batchrun.engines import parent, processes
from batchrun.engines.base import EngineConfig, EngineSnapshot, check_options
from batchrun.engines.vllm_core import CoreProcess, Scratch
from batchrun.errors import EngineUnavailableError

DEFAULTS = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # vLLM's own default is standard output, where data goes
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a forked core inherits files and locks
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}
QUIET = "ignore::FutureWarning,ignore::UserWarning:multiprocessing.resource_tracker"
"""Warnings of Python in the engine's processes that nobody can act on."""
SPECIFIED = {"model", "dtype", "max_model_len", "max_num_batched_tokens", "max_num_seqs"}
SPECULATION = {
    "ngram": {
        "method": "ngram",
        "num_speculative_tokens": 6,
        "prompt_lookup_max": 4,
        "prompt_lookup_min": 2,
    }
}
"""Prompt lookup: what followed the last two to four tokens in the prompt is guessed to follow again. On 16
documents of 200 to 600 tokens with 128 outputs each SmolLM2-135M wrote 1.53 times as fast, and the same
tokens, in float32 on a CPU; `batchrun calibrate CORPUS` measures it on one's own documents."""
CPU_KV_BYTES = 2**30
HINT = (
    "Check the model folder, [engine.options] and the free memory; engine.max_model_len and "
    "engine.max_num_seqs, made smaller, need less of it."
)
MAX_REASON_LENGTH = 600


class Counts:
    """vLLM's counts, recorded on the engine's thread and read from any."""

    def __init__(self) -> None:
        self._now = EngineSnapshot()

    def snapshot(self, in_flight: int) -> EngineSnapshot:
        """The counts as of the last step, where `in_flight` requests are in the engine now."""
        now = self._now
        running = min(now.running, in_flight)
        return replace(now, running=running, waiting=in_flight - running)

    def reset(self) -> None:
        """Begin to count."""
        self._now = EngineSnapshot()

    def record(self, scheduler: Any, iteration: Any) -> None:
        """Add one step: vLLM's SchedulerStats, and its IterationStats, which a step may lack."""
        now = self._now
        if scheduler is not None:
            now = replace(now, running=scheduler.num_running_reqs, kv_cache_usage=scheduler.kv_cache_usage)
        if iteration is not None:
            prompts = iteration.prompt_token_stats
            now = replace(
                now,
                num_preemptions=now.num_preemptions + iteration.num_preempted_reqs,
                computed_tokens=now.computed_tokens + prompts.computed,
                cached_tokens=now.cached_tokens + prompts.cached_tokens,
                output_tokens=now.output_tokens + iteration.num_generation_tokens,
                num_steps=now.num_steps + 1,
                step_tokens=prompts.computed + iteration.num_generation_tokens,
            )
        self._now = now


def prepare_environment() -> None:
    """Set what vLLM reads when it is imported, where the user has not; to be called before the import."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    logging.getLogger("vllm").setLevel(os.environ["VLLM_LOGGING_LEVEL"].upper())
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\.")


def start(config: EngineConfig, counts: Counts) -> tuple[Any, CoreProcess | None]:
    """Start vLLM's LLMEngine, and its core's process unless the core is in this one.

    Raises EngineUnavailableError with what vLLM said.
    """
    prepare_environment()
    options = dict(config.options)
    own_process = _own_process(config, options)
    scratch = Scratch()
    try:
        _check(config, options)
        with _environment(config, scratch, own_process=own_process):
            llm = _start(config, options, counts, own_process=own_process)
        if own_process:
            return llm, CoreProcess(llm, scratch)
    except EngineUnavailableError:
        scratch.close()
        raise
    except Exception as error:
        reason = scratch.first_error() or _said(error)
        scratch.close()
        raise EngineUnavailableError(f"vLLM does not start: {reason[:MAX_REASON_LENGTH]}", HINT) from error
    scratch.close()
    return llm, None


def _check(config: EngineConfig, options: dict[str, Any]) -> None:
    if not (config.model / "config.json").is_file():
        reason = f"{config.model} is no model folder: it has no config.json"
        raise EngineUnavailableError(reason, "Download the model again, or name another folder.")
    for name in SPECIFIED & options.keys():
        key = "model" if name == "model" else f"engine.{name}"
        reason = f"[engine.options]: {name} has its own key in the job spec"
        raise EngineUnavailableError(reason, f"Set {key} instead.")
    if config.speculation != "off" and "speculative_config" in options:
        reason = (
            f"[engine.options]: speculative_config stands beside engine.speculation = {config.speculation!r}"
        )
        raise EngineUnavailableError(reason, "Keep one of the two.")
    from vllm.engine.arg_utils import EngineArgs

    check_options("vllm", options, {"own_process", *EngineArgs.__dataclass_fields__})


def _own_process(config: EngineConfig, options: dict[str, Any]) -> bool:
    chosen = os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING")
    default = config.device != "cpu" if chosen is None else chosen != "0"
    own_process = options.pop("own_process", default)
    if not isinstance(own_process, bool):
        reason = f"[engine.options]: own_process is {own_process!r}"
        raise EngineUnavailableError(reason, "Set it to true or false.")
    return own_process


@contextlib.contextmanager
def _environment(config: EngineConfig, scratch: Scratch, *, own_process: bool) -> Iterator[None]:
    values = {"VLLM_ENABLE_V1_MULTIPROCESSING": str(int(own_process))}
    if own_process:
        values |= {parent.PARENT_PID: str(os.getpid()), parent.ERRORS_FILE: str(scratch.errors)}
        values |= {} if config.owner is None else processes.mark(config.owner)
        values |= _unless_set("PYTHONWARNINGS", QUIET)
        values |= _unless_set("VLLM_RPC_BASE_PATH", str(scratch.folder))
    if own_process and config.device == "cpu":
        values |= _unless_set("VLLM_CPU_NUM_OF_RESERVED_CPU", "0")
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _unless_set(name: str, value: str) -> dict[str, str]:
    return {} if name in os.environ else {name: value}


def _start(config: EngineConfig, options: dict[str, Any], counts: Counts, *, own_process: bool) -> Any:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm.v1.executor import Executor

    arguments = EngineArgs(**_defaults(config) | options)
    vllm_config = arguments.create_engine_config(UsageContext.LLM_CLASS)
    if config.device == "cpu" and "gpu_memory_utilization" not in options:
        _size_kv_cache(vllm_config)
    return LLMEngine(
        vllm_config=vllm_config,
        executor_class=Executor.get_class(vllm_config),
        log_stats=True,
        usage_context=UsageContext.LLM_CLASS,
        stat_loggers=[_stat_logger(counts)],
        multiprocess_mode=own_process,
    )


def _defaults(config: EngineConfig) -> dict[str, Any]:
    values = {name: getattr(config, name) for name in SPECIFIED} | {
        "model": str(config.model),
        "disable_log_stats": False,
        "use_tqdm_on_load": False,
    }
    if config.speculation != "off":
        values["speculative_config"] = dict(SPECULATION[config.speculation])
    if config.device == "cpu":
        values["enforce_eager"] = True
    if config.device == "cpu" and config.samples:
        values["enable_chunked_prefill"] = False
        values["max_num_batched_tokens"] = max(config.max_num_batched_tokens, config.max_model_len)
    return values


def _size_kv_cache(vllm_config: Any) -> None:
    cache = vllm_config.cache_config
    if cache.kv_cache_memory_bytes is not None:
        return
    sequence = ceil(vllm_config.model_config.max_model_len / cache.block_size)
    block_bytes = cache.block_size * _kv_bytes_per_token(vllm_config)
    most = (vllm_config.scheduler_config.max_num_seqs * sequence + 1) * block_bytes
    cache.kv_cache_memory_bytes = min(most, max(CPU_KV_BYTES, (sequence + 1) * block_bytes))


def _kv_bytes_per_token(vllm_config: Any) -> int:
    model, parallel = vllm_config.model_config, vllm_config.parallel_config
    heads = model.get_num_kv_heads(parallel) * model.get_head_size()
    return int(2 * model.get_num_layers(parallel) * heads * model.dtype.itemsize)


def _stat_logger(counts: Counts) -> Any:
    from vllm.v1.metrics.loggers import StatLoggerBase

    class StatLogger(StatLoggerBase):  # type: ignore[misc]
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def record(self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any) -> None:
            counts.record(scheduler_stats, iteration_stats)

        def log_engine_initialized(self) -> None:
            pass

    return StatLogger


def _said(error: Exception) -> str:
    details = getattr(error, "errors", None)  # of pydantic's ValidationError, whose text is long
    text = details()[0]["msg"] if callable(details) else str(error)
    return " ".join(text.split()) or type(error).__name__
