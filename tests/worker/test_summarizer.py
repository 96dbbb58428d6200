"""A document as calls: driven by hand, without an engine."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from batchrun.keys import MERGE, input_hash
from batchrun.records import Document, ErrorType, MemoStatus, Part, Summary
from batchrun.worker.calls import Call
from batchrun.worker.summarizer import summarize
from tests.worker.letters import SETTINGS, letters

KEY = bytes(16)


def document(num_parts: int) -> Document:
    parts = tuple(Part(key=bytes([n]) * 16, token_ids=[n]) for n in range(1, num_parts + 1))
    return Document(
        key=KEY, token_ids=[part.token_ids[0] for part in parts], title="T", parts=parts, num_tokens=num_parts
    )


def row_of(call: Call, summary: str = "sum") -> Summary:
    return Summary(
        key=call.key,
        status=MemoStatus.OK,
        summary=summary,
        input_tokens=len(call.request.prompt_token_ids),
        output_tokens=2,
        document_key=call.document_key,
    )


def drive(
    a_document: Document, answer: Callable[[Call], Summary] = row_of, **changes: Any
) -> tuple[Summary, list[list[Call]]]:
    """Let a document run to its end; its row, and the calls it asked for, pass by pass."""
    calls = summarize(a_document, replace(SETTINGS, **changes))
    passes = [next(calls)]
    while True:
        try:
            passes.append(calls.send([answer(call) for call in passes[-1]]))
        except StopIteration as done:
            return done.value, passes


def test_a_document_that_fits_is_one_call_under_its_own_key() -> None:
    """Its row is the call's."""
    row, [[call]] = drive(Document(key=KEY, token_ids=[7, 8], attempts=2))
    assert [KEY, None, 2, 2] == [call.key, call.document_key, call.attempts, call.kept_tokens]
    start, end = call.request.document_span
    assert [7, 8] == call.request.prompt_token_ids[start:end]
    assert row_of(call) == row


def test_parts_are_asked_for_side_by_side_and_then_merged() -> None:
    """Three parts, one merge, whose evidence stands with the part it came from."""
    row, [parts, [merge]] = drive(document(3), max_model_len=2000)
    assert [bytes([n]) * 16 for n in (1, 2, 3)] == [call.key for call in parts]
    assert [KEY] * 4 == [call.document_key for call in (*parts, merge)]
    said = letters(merge.request.prompt_token_ids)
    assert said.index("part") < said.rindex("sum")
    assert input_hash(MERGE, "T", "Part 1:\nsum\n\nPart 2:\nsum\n\nPart 3:\nsum") == merge.key
    assert ["sum", KEY, None, 3, 3] == [
        row.summary,
        row.key,
        row.document_key,
        row.num_parts,
        row.kept_tokens,
    ]
    assert sum(len(call.request.prompt_token_ids) for call in (*parts, merge)) == row.input_tokens
    assert 8 == row.output_tokens


def test_a_parts_prompt_says_its_number_and_not_how_many_there_are() -> None:
    """So that a document that grew keeps the calls of its first parts."""
    _, [few, *_] = drive(document(2), max_model_len=2000)
    _, [many, *_] = drive(document(9), max_model_len=2000)
    assert [call.request for call in few] == [call.request for call in many[:2]]


def test_merges_recurse_until_one_is_left() -> None:
    """Where not all summaries fit one merge, neighbours are merged first."""
    merge_tokens = SETTINGS.prompts.merge("T", {}).num_tokens
    row, passes = drive(document(9), max_model_len=merge_tokens + SETTINGS.max_tokens + 30)
    assert len(passes) > 2
    assert 9 > len(passes[1]) > len(passes[-1]) == 1
    assert ["sum", 9] == [row.summary, row.num_parts]


def test_a_document_that_does_not_converge_says_so() -> None:
    """Where no two summaries fit one merge, another pass would not make them fewer."""
    merge_tokens = SETTINGS.prompts.merge("T", {}).num_tokens
    row, _ = drive(
        document(4),
        lambda call: row_of(call, "long" * 30),
        max_model_len=merge_tokens + SETTINGS.max_tokens + 150,
    )
    assert [MemoStatus.FAILED, ErrorType.NOT_CONVERGED, None] == [row.status, row.error_type, row.summary]
    assert "the summaries of 4 parts do not fit together: 4 are left" in (row.error or "")
    assert [KEY, 1] == [row.key, row.attempts]


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_part_that_fails_fails_the_document_with_its_reason(failing: int) -> None:
    """The other parts are kept under their own keys."""

    def answer(call: Call) -> Summary:
        if call.key != bytes([failing]) * 16:
            return row_of(call)
        return structs.replace(
            row_of(call),
            status=MemoStatus.FAILED,
            summary=None,
            error_type=ErrorType.ENGINE_ERROR,
            error="no",
        )

    row, passes = drive(document(3), answer, max_model_len=2000)
    assert 1 == len(passes)
    assert [MemoStatus.FAILED, ErrorType.ENGINE_ERROR] == [row.status, row.error_type]
    assert [f"part {failing} of 3: no", KEY, 1] == [row.error, row.key, row.attempts]


def test_the_calls_of_a_document_that_failed_before_are_further_attempts() -> None:
    """So that telemetry tells them from first ones."""
    _, passes = drive(structs.replace(document(3), attempts=2), max_model_len=2000)
    assert {2} == {call.attempts for calls in passes for call in calls}


def test_one_part_needs_no_merge() -> None:
    """Its summary is the document's."""
    row, passes = drive(document(1))
    assert [1, "sum", 1] == [len(passes), row.summary, row.num_parts]


@pytest.mark.parametrize("num_parts", [2, 129, 250])
def test_any_number_of_parts_converges_two_by_two(num_parts: int) -> None:
    """Where only two summaries fit a merge, each pass halves them, to the end."""
    merge_tokens = SETTINGS.prompts.merge("T", {}).num_tokens
    row, passes = drive(document(num_parts), max_model_len=merge_tokens + SETTINGS.max_tokens + 17)
    assert [MemoStatus.OK, num_parts] == [row.status, row.num_parts]
    assert 1 == len(passes[-1])


def test_the_last_merge_may_fail() -> None:
    """With its own reason, which is tried again where it is transient."""

    def answer(call: Call) -> Summary:
        failed = structs.replace(
            row_of(call),
            status=MemoStatus.FAILED,
            summary=None,
            error_type=ErrorType.ENGINE_ERROR,
            error="no",
        )
        return row_of(call) if call.kept_tokens == 1 else failed

    row, _ = drive(document(3), answer, max_model_len=2000)
    assert [ErrorType.ENGINE_ERROR, "parts 1–3 of 3: no"] == [row.error_type, row.error]


def test_columns_enter_the_key_of_a_merge() -> None:
    """The same summaries under another language are another merge."""
    merges = []
    for language in ("French", "Dutch"):
        settings = replace(SETTINGS, variables=("language",), max_model_len=2000)
        calls = summarize(structs.replace(document(2), values=(language,)), settings)
        [merge] = calls.send([row_of(call) for call in next(calls)])
        merges.append(merge.key)
    assert merges[0] != merges[1]
    assert input_hash(MERGE, "T", "language", "French", "Part 1:\nsum\n\nPart 2:\nsum") == merges[0]
