"""What an arm is asked for, in a file, so that every arm can be a process of its own."""

from pathlib import Path
from typing import Any

import msgspec


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts as token ids, and the settings that all arms share: lengths and counts in tokens and sequences.

    `texts` are the prompts spelt out, for an arm that takes no token ids. All outputs are greedy.
    """

    model: str
    dtype: str
    prompts: list[list[int]]
    texts: list[str]
    max_tokens: int
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    kv_cache_memory_bytes: int

    @property
    def input_tokens(self) -> int:
        return sum(map(len, self.prompts))

    @property
    def vllm_settings(self) -> dict[str, Any]:
        """As vLLM's arguments: batchrun's own on a CPU (eager, a KV cache of a known size), for every arm."""
        return {
            "model": self.model,
            "dtype": self.dtype,
            "max_model_len": self.max_model_len,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "max_num_seqs": self.max_num_seqs,
            "kv_cache_memory_bytes": self.kv_cache_memory_bytes,
            "enforce_eager": True,
        }


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What a rival gave back: outputs as token ids in the order of the prompts, the end token among them."""

    running_seconds: float
    token_ids: list[list[int]]
    remark: str = ""


def write(path: Path, what: Assignment | Answers) -> Path:
    path.write_bytes(msgspec.json.encode(what))
    return path


def read_assignment(path: Path) -> Assignment:
    return msgspec.json.decode(path.read_bytes(), type=Assignment)


def read_answers(path: Path) -> Answers:
    return msgspec.json.decode(path.read_bytes(), type=Answers)
