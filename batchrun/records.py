"""The records and enums that the stages share. Frozen, keyword-only; changed by copy.

Those of which a run makes several for every document are msgspec's, which are made in a tenth of a frozen
dataclass' time (0.3 µs for 3 µs, of a Summary): `msgspec.structs.replace` copies them.

A row of the corpus is identified by its `input_hash`, 16 bytes, all through the house. What moves
in columns (the corpus' batches, the plan, the memo table) stays in Arrow and numpy; the records
here are for what moves one at a time.
"""

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import msgspec


class MemoStatus(StrEnum):
    """What the memo table says of a key."""

    OK = "ok"
    FAILED = "failed"
    PARTIAL = "partial"


class RowStatus(StrEnum):
    """What the output says of a row."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"
    PENDING = "pending"


class Preference(StrEnum):
    """What goes first where not all may be done in time: documents of the longest or the shortest buckets, or those
    that stand first in the input. It has its price: documents that begin alike then stand together only within
    a bucket, or not at all.
    """

    LONGEST = "longest"
    SHORTEST = "shortest"
    ORDER = "order"


class FinishReason(StrEnum):
    """vLLM's names."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    REPETITION = "repetition"
    ERROR = "error"


class ErrorType(StrEnum):
    """Why a row has no summary."""

    EMPTY_TEXT = "empty_text"
    INVALID_JSON = "invalid_json"
    INVALID_CSV = "invalid_csv"
    TEXT_TOO_LARGE = "text_too_large"
    DAMAGED_FILE = "damaged_file"
    NOT_TEXT = "not_text"
    PROMPT_TOO_LONG = "prompt_too_long"
    EMPTY_OUTPUT = "empty_output"
    NO_ANSWER = "no_answer"
    NOT_CONVERGED = "not_converged"
    ENGINE_REJECTED = "engine_rejected"
    ENGINE_ERROR = "engine_error"
    KV_CACHE_TOO_SMALL = "kv_cache_too_small"
    ENGINE_CRASH = "engine_crash"


PERMANENT_ERRORS = {
    # True: the same job gives the same failure again, so `submit` leaves the row alone.
    # False: another try or another machine may succeed, so the next `submit` tries again.
    ErrorType.EMPTY_TEXT: True,
    ErrorType.INVALID_JSON: True,
    ErrorType.INVALID_CSV: True,
    ErrorType.TEXT_TOO_LARGE: True,
    ErrorType.DAMAGED_FILE: True,
    ErrorType.NOT_TEXT: True,
    ErrorType.PROMPT_TOO_LONG: True,
    ErrorType.EMPTY_OUTPUT: True,
    ErrorType.NO_ANSWER: True,
    ErrorType.NOT_CONVERGED: True,
    ErrorType.ENGINE_REJECTED: True,
    ErrorType.ENGINE_ERROR: False,
    ErrorType.KV_CACHE_TOO_SMALL: False,
    ErrorType.ENGINE_CRASH: False,
}


def is_permanent(error_type: str) -> bool:
    """Whether `submit` leaves such a failure alone; one that this version does not know is tried again."""
    return any(kind == error_type and permanent for kind, permanent in PERMANENT_ERRORS.items())


class Flag(StrEnum):
    """What a reader of a summary should know about how it came to be."""

    REPLACED_CHARACTERS = "replaced_characters"  # bytes or surrogates that are not text became U+FFFD
    CAPPED = "capped"  # the output reached max_tokens
    TRUNCATED = "truncated"  # the model read the beginning of the document only
    REPETITION = "repetition"  # the output ends in the same words again and again


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """A half-open range of input tokens: `lower <= tokens < upper`; the last has no upper end."""

    lower: int
    upper: int | None
    is_long: bool = False  # of documents that do not fit the context, whatever their length

    @property
    def name(self) -> str:
        return (
            "long"
            if self.is_long
            else f"{self.lower:06d}-{'' if self.upper is None else format(self.upper, '06d')}"
        )

    @property
    def label(self) -> str:
        if self.is_long:
            return "long"
        return (
            f"{_short(self.lower)}+" if self.upper is None else f"{_short(self.lower)}–{_short(self.upper)}"
        )


LONG = Bucket(lower=0, upper=None, is_long=True)


def _short(tokens: int) -> str:
    return f"{tokens // 1024}K" if tokens and tokens % 1024 == 0 else str(tokens)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a document that is longer than the context. `key` is that of the call that summarizes it."""

    key: bytes
    token_ids: list[int]


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A planned text on its way to the engine. `token_ids` are the text alone, without the prompt.

    `values` are those of the columns in its prompt. A long document has `parts`, and their tokens one after
    the other in `token_ids`; `num_tokens` are its own, without what the parts share.
    """

    key: bytes
    token_ids: list[int]
    attempts: int = 0  # failed attempts so far
    values: tuple[str, ...] = ()
    title: str = ""
    parts: tuple[Part, ...] = ()
    num_tokens: int = 0


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the engine. `document_span` is where the document stands in `prompt_token_ids`, whose last
    `num_generated` tokens are the output so far, where earlier slices of it are decoded already. `ignore_eos`: the
    output has `max_tokens` tokens, wherever the model would end it.
    """

    request_id: str
    prompt_token_ids: list[int]
    document_span: tuple[int, int]
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    num_generated: int = 0
    ignore_eos: bool = False


class RequestTimes(msgspec.Struct, frozen=True, kw_only=True):
    """When things happened to one request: seconds of one monotonic clock of the engine, good for differences.

    `itl_p50` and `itl_p95` are seconds between tokens, None where the engine did not take them or the
    output came in one step. `token_gaps` are all of them, where the engine was started to keep them.
    """

    queued_at: float
    scheduled_at: float
    first_token_at: float
    last_token_at: float
    itl_p50: float | None = None
    itl_p95: float | None = None
    token_gaps: tuple[float, ...] = ()
    num_preemptions: int = 0

    def milliseconds(self) -> tuple[float | None, ...]:
        """`queue_ms, prefill_ms, ttft_ms, decode_ms, itl_p50, itl_p95` of request telemetry."""
        moments = (self.queued_at, self.scheduled_at, self.first_token_at, self.last_token_at)
        queue, prefill, decode = (1e3 * (later - before) for before, later in pairwise(moments))
        gaps = (None if gap is None else 1e3 * gap for gap in (self.itl_p50, self.itl_p95))
        return (queue, prefill, queue + prefill, decode, *gaps)


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine gave back for one request; `error` is set when `finish_reason` is `ERROR`."""

    request_id: str
    token_ids: list[int]
    finish_reason: FinishReason
    input_tokens: int
    cached_tokens: int = 0
    error_type: ErrorType | None = None
    error: str | None = None
    times: RequestTimes | None = None


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """A request that the engine is done with, for request telemetry alone.

    `stage` is one of `keys`'; `attempt` counts from 1, `slice_number` from 0; `running`: the sequences
    of the engine's step that ended it; `finished_at`: time.monotonic() of this process after that step, where
    the engine has a clock of its own with the time by that since it was there.
    """

    key: bytes
    document_key: bytes | None
    stage: str
    attempt: int
    slice_number: int = 0
    running: int
    finished_at: float
    completion: Completion


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the memo table. `token_ids` are kept for a `PARTIAL` row only: decoding goes on from them.

    A call of a long document (a part, a merge) has a row of its own under its own key; `document_key` is
    then that of the document it was first made for, else None. A long document's row has the keys of its calls.

    `input_tokens` counts the tokens of all prompts computed for the document, `kept_tokens` those of
    the document itself that the model read.
    """

    key: bytes
    status: MemoStatus
    summary: str | None = None
    error_type: ErrorType | None = None
    error: str | None = None
    finish_reason: FinishReason | None = None
    flags: tuple[str, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    kept_tokens: int = 0
    num_parts: int = 1
    attempts: int = 0
    engine: str = ""
    token_ids: tuple[int, ...] | None = None
    document_key: bytes | None = None
    calls: tuple[bytes, ...] = ()
