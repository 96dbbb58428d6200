"""A call of the engine, known by its key: what is asked, of which document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import xxhash
from msgspec.structs import replace

from batchrun.keys import DOCUMENT
from batchrun.prompts.frames import PromptFrame, Prompts
from batchrun.prompts.tokenizer import Tokenizer
from batchrun.records import Document, Request


@dataclass(frozen=True, kw_only=True)
class CallSettings:
    """What all calls of a job have in common; `variables` are the names of the columns in its prompts."""

    prompts: Prompts
    tokenizer: Tokenizer
    max_model_len: int
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    variables: tuple[str, ...] = ()

    def values(self, document: Document) -> Mapping[str, str]:
        return dict(zip(self.variables, document.values, strict=True)) if document.values else {}


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request and what its memo row needs beside the completion; `document_key` of nested calls only.

    `stage` is one of `keys`'.
    """

    key: bytes
    request: Request
    kept_tokens: int
    attempts: int = 0
    opens_thought: bool = False
    document_key: bytes | None = None
    stage: str = DOCUMENT


def make_call(
    key: bytes,
    frame: PromptFrame,
    token_ids: Sequence[int],
    settings: CallSettings,
    *,
    attempts: int = 0,
    document_key: bytes | None = None,
    stage: str = DOCUMENT,
) -> Call:
    """The call that puts `token_ids` into a frame."""
    start = len(frame.prefix)
    request = Request(
        request_id=key.hex(),
        prompt_token_ids=frame.around(token_ids),
        document_span=(start, start + len(token_ids)),
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        seed=sampling_seed(settings.seed, key, 0) if settings.temperature else 0,
    )
    return Call(
        key=key,
        request=request,
        kept_tokens=len(token_ids),
        attempts=attempts,
        opens_thought=settings.prompts.opens_thought,
        document_key=document_key,
        stage=stage,
    )


def resumed(call: Call, token_ids: Sequence[int]) -> Call:
    """The call with the output that an earlier run began; unchanged where that is as long as it may be."""
    request, num_made = call.request, len(token_ids)
    if not 0 < num_made < request.max_tokens:
        return call
    request = replace(
        request,
        prompt_token_ids=[*request.prompt_token_ids, *token_ids],
        max_tokens=request.max_tokens - num_made,
        num_generated=num_made,
    )
    return replace(call, request=request)


def sampling_seed(seed: int, key: bytes, slice_number: int) -> int:
    """xxh3_64(seed, input_hash, slice), in 63 bits: the same in any order, batch, shard and resume."""
    parts = seed.to_bytes(8, "little", signed=True) + key + slice_number.to_bytes(4, "little")
    return xxhash.xxh3_64_intdigest(parts) >> 1
