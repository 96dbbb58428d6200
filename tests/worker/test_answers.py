"""From what the engine gave back to a memo row."""

import pytest
from msgspec.structs import replace

from batchrun.records import Completion, ErrorType, FinishReason, MemoStatus
from batchrun.worker.answers import answer, flags_of, repeats
from batchrun.worker.calls import make_call
from tests.worker.letters import SETTINGS


def completion(token_ids: list[int], reason: FinishReason = FinishReason.STOP) -> Completion:
    return Completion(request_id="r", token_ids=token_ids, finish_reason=reason, input_tokens=9)


@pytest.mark.parametrize(
    ("text", "opens_thought", "summary", "error_type"),
    [
        ("A summary.", False, "A summary.", None),
        ("  spaced \n", False, "spaced", None),
        ("NUL\x00 and bell\x07, tab\tkept", False, "NUL and bell, tab\tkept", None),
        ("", False, None, ErrorType.EMPTY_OUTPUT),
        (" \n\x00", False, None, ErrorType.EMPTY_OUTPUT),
        ("<think>\nwell\n</think>\n\nSo.", False, "So.", None),
        ("<think></think>So.", False, "So.", None),
        ("<think>a</think>So. <think>b</think>Yes.", False, "So. Yes.", None),
        ("<think>still", False, None, ErrorType.NO_ANSWER),
        ("So. <think>still", False, None, ErrorType.NO_ANSWER),
        ("<think>a</think>", False, None, ErrorType.EMPTY_OUTPUT),
        ("well</think>So.", True, "So.", None),
        ("<think>well</think>So.", True, "So.", None),
        ("still", True, None, ErrorType.NO_ANSWER),
        ("a </think> b", False, "a </think> b", None),
    ],
)
def test_what_is_a_summary(
    text: str, opens_thought: bool, summary: str | None, error_type: ErrorType | None
) -> None:
    """Thoughts are cut away, an unfinished one is no answer, control characters go, nothing is not a summary."""
    call = make_call(bytes(16), SETTINGS.prompts.document({}), [1], SETTINGS, attempts=1)
    row = answer(replace(call, opens_thought=opens_thought), completion([5]), text, "engine")
    assert [summary, error_type] == [row.summary, row.error_type]
    status, attempts = (MemoStatus.OK, 1) if error_type is None else (MemoStatus.FAILED, 2)
    assert [status, attempts] == [row.status, row.attempts]


@pytest.mark.parametrize(
    ("token_ids", "expected"),
    [
        ([], False),
        ([1] * 23, False),
        ([1] * 24, True),
        ([9, 8, *[1] * 24], True),
        ([*[1] * 24, 9], False),
        (list(range(8)) * 3, True),
        (list(range(8)) * 2, False),
        ([*range(100), *list(range(50, 70)) * 3], True),
        (list(range(300)) * 2, False),
        (list(range(1000)), False),
    ],
)
def test_an_output_that_ends_in_the_same_words_is_flagged(token_ids: list[int], expected: bool) -> None:
    """Three times or more, and 24 tokens in all."""
    assert expected == repeats(token_ids)
    assert expected == ("repetition" in flags_of(completion(token_ids)))


def test_an_output_at_the_cap_is_flagged() -> None:
    """By the engine's own reason."""
    assert ("capped",) == flags_of(completion([1, 2], FinishReason.LENGTH))
