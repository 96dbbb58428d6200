"""A document as calls of the engine: a generator that asks for requests and is sent their completions.

Whoever drives it knows neither how many calls a document takes nor what they are about.
"""

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import xxhash

from batchrun.prompts.template import PromptFrame
from batchrun.prompts.tokenizer import Tokenizer
from batchrun.records import (
    Completion,
    Document,
    ErrorType,
    FinishReason,
    Flag,
    MemoStatus,
    Request,
    Summary,
)

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True, kw_only=True)
class CallSettings:
    """What all calls of a job have in common."""

    frame: PromptFrame
    max_tokens: int
    temperature: float
    top_p: float
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A document whose calls are done: the last completion, not yet text, and the sums over all."""

    document: Document
    completion: Completion
    input_tokens: int
    output_tokens: int
    cached_tokens: int


Calls = Generator[list[Request], list[Completion], Draft]


def summarize(document: Document, settings: CallSettings) -> Calls:
    """The calls of one document. Yields requests that may run side by side; wants their completions."""
    frame = settings.frame
    request = Request(
        request_id=document.key.hex(),
        prompt_token_ids=frame.around(document.token_ids),
        document_span=(len(frame.prefix), len(frame.prefix) + len(document.token_ids)),
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        seed=sampling_seed(settings.seed, document.key, 0) if settings.temperature else 0,
    )
    [completion] = yield [request]
    return Draft(
        document=document,
        completion=completion,
        input_tokens=completion.input_tokens,
        output_tokens=len(completion.token_ids),
        cached_tokens=completion.cached_tokens,
    )


def sampling_seed(seed: int, key: bytes, slice_number: int) -> int:
    """xxh3_64(seed, input_hash, slice), in 63 bits: the same in any order, batch, shard and resume."""
    parts = seed.to_bytes(8, "little", signed=True) + key + slice_number.to_bytes(4, "little")
    return xxhash.xxh3_64_intdigest(parts) >> 1


def finish(drafts: Sequence[Draft], tokenizer: Tokenizer, engine: str) -> list[Summary]:
    """Memo rows of drafts, detokenized in one call. An aborted document is unattempted: it has no row."""
    attempted = [draft for draft in drafts if draft.completion.finish_reason is not FinishReason.ABORT]
    texts = tokenizer.decode([draft.completion.token_ids for draft in attempted])
    return [_row(draft, text, engine) for draft, text in zip(attempted, texts, strict=True)]


def _row(draft: Draft, text: str, engine: str) -> Summary:
    completion, document = draft.completion, draft.document
    text = (text if text.isprintable() else _CONTROL_CHARACTERS.sub("", text)).strip()
    error_type, error = completion.error_type, completion.error
    if completion.finish_reason is not FinishReason.ERROR and not text:
        error_type, error = ErrorType.EMPTY_OUTPUT, "the model gave no text"
    failed = error_type is not None
    return Summary(
        key=document.key,
        status=MemoStatus.FAILED if failed else MemoStatus.OK,
        summary=None if failed else text,
        error_type=error_type,
        error=error,
        finish_reason=completion.finish_reason,
        flags=(Flag.CAPPED,) if completion.finish_reason is FinishReason.LENGTH else (),
        input_tokens=draft.input_tokens,
        output_tokens=draft.output_tokens,
        cached_tokens=draft.cached_tokens,
        kept_tokens=len(document.token_ids),
        attempts=document.attempts + 1 if failed else document.attempts,
        engine=engine,
    )
