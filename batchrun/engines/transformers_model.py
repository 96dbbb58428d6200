"""A causal language model on torch, loaded with transformers: what it is, and one forward pass."""

import contextlib
import inspect
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from batchrun.engines.base import EngineConfig, check_options
from batchrun.errors import EngineUnavailableError

HINT = (
    "Check the model folder, [engine.options] and the free memory; engine.max_model_len and "
    "engine.max_num_seqs, made smaller, need less of it."
)
MAX_REASON_LENGTH = 600
CPU_KV_BYTES = 2**30
CUDA_KV_SHARE = 0.5
"""Of the memory that is free with the weights loaded: the cache grows by copying, and prefill needs its own."""
TRIAL_TOKENS = 8


class TransformersOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`[engine.options]`: the attention that transformers is to use (its own choice without one; `eager`
    where a model has no other), the bytes of KV cache, and whether code in the model folder may run.
    """

    attn_implementation: str | None = None
    kv_cache_memory_bytes: Annotated[int, Meta(ge=1)] | None = None
    trust_remote_code: bool = False


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """An output ends with one of `end_token_ids`; `arguments` are those that its forward pass takes."""

    module: Any
    device: str
    end_token_ids: frozenset[int]
    arguments: frozenset[str]

    @property
    def vocabulary(self) -> int:
        """Token ids are below it."""
        return int(self.module.config.get_text_config(decoder=True).vocab_size)

    def new_cache(self) -> Any:
        """A KV cache without a token in it."""
        from transformers import DynamicCache

        return DynamicCache(config=self.module.config)

    def next_logits(self, token_ids: Any, mask: Any, positions: Any, cache: Any) -> Any:
        """Of each row the logits after its last token, float32. `token_ids` and `positions` are `[rows, new]`,
        `mask` is `[rows, all]`, 0 where there is padding. `cache` takes in the new tokens.
        """
        wanted = {"position_ids": positions, "logits_to_keep": 1}
        output = self.module(
            input_ids=token_ids,
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
            **{name: value for name, value in wanted.items() if name in self.arguments},
        )
        return output.logits[:, -1].float()


def load_model(config: EngineConfig) -> tuple[LoadedModel, int]:
    """The model, tried once, and how many tokens its KV cache may hold. Raises EngineUnavailableError with what was said where that fails."""
    options = _read_options(config.options)
    if not (config.model / "config.json").is_file():
        reason = f"{config.model} is no model folder: it has no config.json"
        raise EngineUnavailableError(reason, "Download the model again, or name another folder.")
    try:
        with _quiet():
            return _load(config, options)
    except EngineUnavailableError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:MAX_REASON_LENGTH] or type(error).__name__
        raise EngineUnavailableError(f"transformers does not load the model: {said}", HINT) from error


def prepare_environment() -> None:
    """Set what torch reads when it is imported, where the user has not; to be called before the import."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def _read_options(options: dict[str, Any]) -> TransformersOptions:
    check_options("transformers", options, TransformersOptions.__struct_fields__)
    try:
        return msgspec.convert(options, TransformersOptions)
    except msgspec.ValidationError as error:
        reason = f"[engine.options] of the transformers engine: {error}"
        raise EngineUnavailableError(reason, "Correct the value in the job spec.") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' progress bars and warnings, which go to the terminal."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _load(config: EngineConfig, options: TransformersOptions) -> tuple[LoadedModel, int]:
    import torch
    from transformers import AutoModelForCausalLM

    chosen = (
        {} if options.attn_implementation is None else {"attn_implementation": options.attn_implementation}
    )
    module = AutoModelForCausalLM.from_pretrained(
        config.model,
        dtype=getattr(torch, config.dtype),
        local_files_only=True,
        trust_remote_code=options.trust_remote_code,
        **chosen,
    )
    model = LoadedModel(
        module=module.to(config.device).eval(),
        device=config.device,
        end_token_ids=_end_token_ids(module, config, options),
        arguments=frozenset(inspect.signature(module.forward).parameters),
    )
    return model, _kv_tokens(model, config, options)


def _end_token_ids(module: Any, config: EngineConfig, options: TransformersOptions) -> frozenset[int]:
    """Those of the generation config, and the tokenizer's: vLLM ends at either."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        config.model, local_files_only=True, trust_remote_code=options.trust_remote_code
    )
    named = module.generation_config.eos_token_id
    listed = named if isinstance(named, list) else [named]
    return frozenset(token for token in [*listed, tokenizer.eos_token_id] if token is not None)


def _kv_tokens(model: LoadedModel, config: EngineConfig, options: TransformersOptions) -> int:
    import torch

    bytes_per_token = _kv_bytes_per_token(model)
    num_bytes = options.kv_cache_memory_bytes
    if num_bytes is None and config.device == "cpu":
        num_bytes = CPU_KV_BYTES
    if num_bytes is None:
        num_bytes = int(CUDA_KV_SHARE * torch.cuda.mem_get_info()[0])
    most = config.max_num_seqs * config.max_model_len
    return max(config.max_model_len, min(most, num_bytes // bytes_per_token))


def _padded_layers() -> set[Any]:
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    return {DynamicLayer, DynamicSlidingWindowLayer}


def _kv_bytes_per_token(model: LoadedModel) -> int:
    """As a trial shows, which also finds a model that loads and does not run."""
    import torch

    cache = model.new_cache()
    if not all(type(layer) in _padded_layers() for layer in cache.layers):
        reason = f"{type(model.module).__name__} remembers more than keys and values, so rows can not leave a batch"
        raise EngineUnavailableError(reason, "Run this model on vLLM: pip install 'batchrun[vllm]'")
    token_ids = torch.zeros((1, TRIAL_TOKENS), dtype=torch.long, device=model.device)
    positions = torch.arange(TRIAL_TOKENS, device=model.device)[None]
    with torch.inference_mode():
        model.next_logits(token_ids, torch.ones_like(token_ids), positions, cache)
    tensors = (tensor for layer in cache.layers for tensor in (layer.keys, layer.values))
    num_bytes: int = sum(tensor.nbytes for tensor in tensors)
    return max(1, num_bytes // TRIAL_TOKENS)
