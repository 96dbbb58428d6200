"""What an engine gave back, as a memo row: cleaned, judged, and flagged."""

import re
from contextlib import suppress

from batchrun.records import Completion, ErrorType, FinishReason, Flag, MemoStatus, Summary
from batchrun.worker.calls import Call

REPEATED = 3
"""Times that the same words end an output, from which it is flagged; with `REPEATED_TOKENS` in all."""
REPEATED_TOKENS = 24
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)


def answer(call: Call, completion: Completion, text: str, engine: str) -> Summary:
    """The memo row of a call that was not aborted."""
    if completion.finish_reason in (FinishReason.LENGTH, FinishReason.REPETITION):
        text = text.rstrip("\ufffd")  # of a character that was cut
    text, unclosed = spoken(
        text if text.isprintable() else _CONTROL_CHARACTERS.sub("", text), call.opens_thought
    )
    error_type, error = completion.error_type, completion.error
    if error_type is None and unclosed:
        error_type = ErrorType.NO_ANSWER
        error = f"the model was still thinking after {len(completion.token_ids):,} tokens; raise output.max_tokens"
    elif error_type is None and not text:
        error_type, error = ErrorType.EMPTY_OUTPUT, "the model gave no text"
    failed = error_type is not None
    return Summary(
        key=call.key,
        status=MemoStatus.FAILED if failed else MemoStatus.OK,
        summary=None if failed else text,
        error_type=error_type,
        error=error,
        finish_reason=completion.finish_reason,
        flags=flags_of(completion),
        input_tokens=completion.input_tokens,
        output_tokens=len(completion.token_ids),
        cached_tokens=completion.cached_tokens,
        kept_tokens=call.kept_tokens,
        attempts=call.attempts + 1 if failed else call.attempts,
        engine=engine,
        document_key=call.document_key,
    )


def begun_row(call: Call, output: Completion, engine: str) -> Summary:
    """The memo row of an output that is not whole yet, with its token ids: decoding goes on from them."""
    return Summary(
        key=call.key,
        status=MemoStatus.PARTIAL,
        input_tokens=output.input_tokens,
        output_tokens=len(output.token_ids),
        cached_tokens=output.cached_tokens,
        kept_tokens=call.kept_tokens,
        attempts=call.attempts,
        engine=engine,
        token_ids=tuple(output.token_ids),
        document_key=call.document_key,
    )


def spoken(text: str, opens_thought: bool) -> tuple[str, bool]:
    """What was said and not thought, and whether a thought has no end."""
    if opens_thought and "<think>" not in text.partition("</think>")[0]:
        text = f"<think>{text}"
    said, thought, _ = _THOUGHT.sub("", text).partition("<think>")
    return said.strip(), bool(thought)


def flags_of(completion: Completion) -> tuple[str, ...]:
    flags: tuple[str, ...] = (Flag.CAPPED,) if completion.finish_reason is FinishReason.LENGTH else ()
    return (*flags, Flag.REPETITION) if repeats(completion.token_ids) else flags


def repeats(token_ids: list[int]) -> bool:
    """Whether an output ends in the same tokens `REPEATED` times or more, one after the other."""
    size = len(token_ids)
    if size < REPEATED_TOKENS:
        return False
    backwards, period = token_ids[::-1], 0
    with suppress(ValueError):  # the last token did not stand before
        while True:
            period = backwards.index(backwards[0], period + 1, size // REPEATED + 1)
            length = max(REPEATED, -(-REPEATED_TOKENS // period)) * period
            if length <= size and backwards[: length - period] == backwards[period:length]:
                return True
    return False
