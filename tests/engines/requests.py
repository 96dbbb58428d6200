"""Configs and requests for engine tests."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from batchrun.engines.base import Engine, EngineConfig
from batchrun.records import Completion, Request

MAX_MODEL_LEN = 512
VOCABULARY = 49152
END_TOKEN = 2


def make_config(kind: str, model: Path, **changes: Any) -> EngineConfig:
    values: dict[str, Any] = {
        "kind": kind,
        "dtype": "none" if kind == "lead" else "float32",
        "device": "cpu",
        "model": model,
        "max_model_len": MAX_MODEL_LEN,
        "max_num_batched_tokens": 1024,
        "max_num_seqs": 8,
    }
    return EngineConfig(**values | changes)


def make_request(request_id: str, num_tokens: int = 40, max_tokens: int = 16, **changes: Any) -> Request:
    """A prompt of random tokens that depend on the id alone; all of it is the document."""
    tokens = random.Random(request_id)  # noqa: S311 - a prompt, not a secret
    values: dict[str, Any] = {
        "request_id": request_id,
        "prompt_token_ids": [tokens.randrange(100, VOCABULARY) for _ in range(num_tokens)],
        "document_span": (0, num_tokens),
        "max_tokens": max_tokens,
        "temperature": 0.0,
        "top_p": 1.0,
        "seed": 0,
    }
    return Request(**values | changes)


def run(engine: Engine, requests: Iterable[Request]) -> list[Completion]:
    """Add all requests, and step until nothing is unfinished."""
    for request in requests:
        engine.add(request)
    completions = []
    while engine.has_unfinished():
        completions += engine.step()
    return completions


def outputs(completions: Iterable[Completion]) -> dict[str, list[int]]:
    return {completion.request_id: completion.token_ids for completion in completions}
