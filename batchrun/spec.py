"""The job spec: what a person writes in `jobs/*.toml`, validated, and its fingerprint.

The fingerprint covers what can change a summary and nothing else; two specs with one fingerprint
share their finished summaries. `FINGERPRINTED` and `NEUTRAL` name the side on which each field
stands; a field on neither side fails a test. A field that came later stands in the fingerprint only where
it is not at its default (`LATER`): the jobs from before it keep their ids and their finished summaries.
"""

import difflib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import xxhash
from msgspec import Meta, Struct

from batchrun.errors import ConfigError

RECIPE = 3
"""Raised when our code makes other prompts from the same spec, or cleans outputs in another way."""

Positive = Annotated[int, Meta(ge=1)]


class PromptSpec(Struct, frozen=True, kw_only=True):
    system: str = "You write faithful summaries."
    instruction: Annotated[str, Meta(min_length=1)] = "Summarize the document in at most three sentences."


class OutputSpec(Struct, frozen=True, kw_only=True):
    max_tokens: Positive = 160
    temperature: Annotated[float, Meta(ge=0.0, le=5.0)] = 0.0
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0


class LongDocumentsSpec(Struct, frozen=True, kw_only=True):
    policy: Literal["map_reduce", "truncate", "fail"] = "map_reduce"
    overlap_share: Annotated[float, Meta(ge=0.0, le=0.5)] = 0.05


class ColumnsSpec(Struct, frozen=True, kw_only=True):
    id: str | None = None
    text: str | None = None


class ResidencySpec(Struct, frozen=True, kw_only=True):
    """How long an output holds a decode slot: `slice_tokens` in one stay; `max_share`: of the sequences that
    run, past their first slice, while others wait for theirs.
    """

    slice_tokens: Positive = 512
    max_share: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.5


class BucketsSpec(Struct, frozen=True, kw_only=True):
    edges: tuple[Positive, ...] = (1024, 8192, 32768)


class EngineSpec(Struct, frozen=True, kw_only=True):
    """`load_seconds`: the longest that the engine may take to be there; where it is not set, half an hour, and for
    large models what their weights need at 20 MB/s. `stall_seconds`: the longest that it may make no token.
    """

    kind: Literal["auto", "vllm", "transformers", "lead"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    max_model_len: Positive | None = None
    max_num_batched_tokens: Positive = 16384
    max_num_seqs: Positive = 256
    speculation: Literal["off", "ngram"] = "off"
    load_seconds: Positive | None = None
    stall_seconds: Positive = 900
    options: dict[str, Any] = {}


class JobSpec(Struct, frozen=True, kw_only=True):
    model: Annotated[str, Meta(min_length=1)]
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z")] | None = None
    revision: str = "main"
    prompt: PromptSpec = PromptSpec()
    output: OutputSpec = OutputSpec()
    long_documents: LongDocumentsSpec = LongDocumentsSpec()
    columns: ColumnsSpec = ColumnsSpec()
    residency: ResidencySpec = ResidencySpec()
    buckets: BucketsSpec = BucketsSpec()
    engine: EngineSpec = EngineSpec()


SAMPLED_ONLY = "residency.slice_tokens"
"""In the fingerprint where the temperature is above 0: each slice draws with a seed of its own."""

FINGERPRINTED = frozenset(
    {
        "model",
        "revision",
        "prompt.system",
        "prompt.instruction",
        "output.max_tokens",
        "output.temperature",
        "output.top_p",
        "long_documents.policy",
        "long_documents.overlap_share",
        SAMPLED_ONLY,
        "engine.kind",
        "engine.dtype",
        "engine.max_model_len",
        "engine.speculation",
        "engine.options",
    }
)
LATER = {"engine.speculation": "off"}
"""Fields younger than the first jobs, with the value under which they are left out of the fingerprint."""
NEUTRAL = frozenset(
    {
        "name",
        "columns.id",
        "columns.text",
        "residency.max_share",
        "buckets.edges",
        "engine.max_num_batched_tokens",
        "engine.max_num_seqs",
        "engine.load_seconds",
        "engine.stall_seconds",
    }
)
NEUTRAL_OPTIONS = frozenset(
    {
        "gpu_memory_utilization",
        "kv_cache_memory_bytes",
        "max_num_active_seqs",
        "own_process",
        "prefill_tokens_per_s",
        "decode_tokens_per_s",
        "kv_tokens",
        "profile",
        "clock",
        "prefix_caching",
        "decode_half_batch",
    }
)
"""Engine options that decide how fast, never what."""


def load_spec(path: Path) -> JobSpec:
    """Read and validate a spec; its name defaults to the file's stem. Raises ConfigError."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"there is no job spec {path.absolute()}",
            "Give one with --job, or make a workspace with starter specs: batchrun init",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path.absolute()} is not readable as TOML: {error}", "Mend the file.") from error
    return parse_spec(table, path)


def parse_spec(table: dict[str, Any], path: Path) -> JobSpec:
    """Validate a spec's table; `path` names it in messages. Raises ConfigError."""
    for where, key, known in _unknown_keys(table, JobSpec, ""):
        close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
        proposal = f"Did you mean {close[0]!r}?" if close else f"Known here: {', '.join(sorted(known))}."
        raise ConfigError(f"{path.absolute()}: unknown key {where + key!r}", proposal)
    try:
        spec = msgspec.convert(table, JobSpec)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path.absolute()}: {error}", "Mend that value in the spec.") from None
    edges = list(spec.buckets.edges)
    if edges != sorted(set(edges)):
        raise ConfigError(f"{path.absolute()}: buckets.edges {edges} do not rise", "Sort them, each once.")
    return spec if spec.name is not None else renamed(spec, path.stem)


def renamed(spec: JobSpec, name: str) -> JobSpec:
    """The spec under another name. Raises ConfigError for a name that can not be part of a job id."""
    try:
        msgspec.convert({"model": spec.model, "name": name}, JobSpec)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"name {name!r} can not be used: {error}", "Use letters, digits, '.', '_' and '-'."
        ) from None
    return msgspec.structs.replace(spec, name=name)


def _unknown_keys(table: dict[str, Any], kind: type, where: str) -> Iterator[tuple[str, str, list[str]]]:
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in table.items():
        if key not in fields:
            yield where, key, list(fields)
        elif isinstance(value, dict) and isinstance(fields[key], type) and issubclass(fields[key], Struct):
            yield from _unknown_keys(value, fields[key], f"{where}{key}.")


def flat_fields(spec: JobSpec) -> dict[str, Any]:
    """Every field of a spec by its dotted name; `engine.options` is one field."""
    flat: dict[str, Any] = {}
    for name, value in msgspec.to_builtins(spec).items():
        nested = isinstance(value, dict)
        flat |= (
            {f"{name}.{inner}": inner_value for inner, inner_value in value.items()}
            if nested
            else {name: value}
        )
    return flat


def fingerprint_fields(spec: JobSpec, *, model_content: str, max_model_len: int) -> dict[str, Any]:
    """What can change a summary. `model_content` stands for the model and its resolved revision."""
    fields = {
        name: value
        for name, value in flat_fields(spec).items()
        if name in FINGERPRINTED and (name not in LATER or value != LATER[name])
    }
    options = {key: value for key, value in spec.engine.options.items() if key not in NEUTRAL_OPTIONS}
    del fields["revision"]
    if not spec.output.temperature:
        del fields[SAMPLED_ONLY]
    return fields | {
        "model": model_content,
        "engine.max_model_len": max_model_len,
        "engine.options": options,
        "recipe": RECIPE,
    }


def fingerprint(fields: dict[str, Any]) -> str:
    """xxh3_128 of the canonical JSON, as 32 hex digits."""
    return xxhash.xxh3_128_hexdigest(msgspec.json.encode(fields, order="deterministic"))


def job_id(name: str, fingerprint: str) -> str:
    return f"{name}-{fingerprint[:8]}"
