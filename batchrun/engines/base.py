"""What an engine is to the rest of the house."""

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from batchrun.records import Completion, Request


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """All that an engine is started with. `kind` and `dtype` are resolved, never `auto`."""

    kind: str
    dtype: str
    device: str
    model: Path
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    samples: bool = False  # whether requests have a temperature
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EngineLimits:
    """`kv_tokens` and `block_size` in tokens; `pads`: whether a batch is padded to its longest prompt."""

    max_model_len: int
    kv_tokens: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    pads: bool = False


@dataclass(frozen=True, kw_only=True)
class EngineSnapshot:
    """The engine now, and its counts since the start. `kv_cache_usage` is a share from 0 to 1."""

    running: int = 0
    waiting: int = 0
    kv_cache_usage: float = 0.0
    num_preemptions: int = 0
    computed_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class EngineDeadError(Exception):
    """The engine is gone; what was in flight is unattempted, not failed."""


class Engine(Protocol):
    """Driven by one thread. A request it refuses comes back from `step` as a completion with `ERROR`."""

    limits: EngineLimits
    label: str  # what made a row: name, version, device, dtype

    def add(self, request: Request) -> None:
        """Queue a request; its id must not be in the engine already."""

    def step(self) -> list[Completion]:
        """Run the engine on; may be empty. With nothing to do it returns at once. Raises EngineDeadError."""

    def abort(self, request_ids: Collection[str]) -> None:
        """Forget requests; no completion of theirs is returned afterwards. Unknown ids are ignored."""

    def has_unfinished(self) -> bool:
        """Whether a request is queued or running."""

    def snapshot(self) -> EngineSnapshot:
        """May be called from any thread."""

    def close(self) -> None:
        """End within seconds, leave no process behind; may be called twice, and from any thread."""
