"""A document as calls of the engine: a generator that asks for calls and is sent their memo rows.

Whoever drives it knows neither how many calls a document takes nor what they are about. A document that
fits the context is one call under its own key. A longer one is a call for each part, side by side, then
merges of their summaries until one is left; each has a key of its own, so that what is done is never
computed again.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from batchrun.keys import MERGE, PART, input_hash
from batchrun.records import Document, ErrorType, MemoStatus, Summary
from batchrun.worker.calls import Call, CallSettings, make_call

Calls = Generator[list[Call], list[Summary], Summary]


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """A summary of the parts `first` to `last` of a document, numbered from 1."""

    first: int
    last: int
    row: Summary

    @property
    def text(self) -> str:
        parts = f"Part {self.first}" if self.first == self.last else f"Parts {self.first}–{self.last}"
        return f"{parts}:\n{self.row.summary}\n\n"


def summarize(document: Document, settings: CallSettings) -> Calls:
    """The calls of one document. Yields calls that may run side by side; wants their rows, in that order.

    Returns the document's own row: `ok`, or `failed` with the reason of the call that failed.
    """
    if document.parts:
        row = yield from _summarize_parts(document, settings)
        return row
    frame = settings.prompts.document(settings.values(document))
    [row] = yield [make_call(document.key, frame, document.token_ids, settings, attempts=document.attempts)]
    return row


def _summarize_parts(document: Document, settings: CallSettings) -> Calls:
    rows = yield _part_calls(document, settings)
    done = list(rows)
    evidence = [Evidence(first=n, last=n, row=row) for n, row in enumerate(rows, 1)]
    while True:  # every pass leaves fewer summaries, or is the last
        if failed := next((one for one in evidence if one.row.status is not MemoStatus.OK), None):
            return _failed(document, done, failed)
        if len(evidence) == 1:
            return _finished(document, done, evidence[0].row)
        groups = _groups(document, settings, evidence)
        if len(groups) == len(evidence):
            return _not_converged(document, done, evidence)
        rows = yield [_merge_call(document, settings, group) for group in groups if len(group) > 1]
        done += rows
        merged = iter(rows)
        evidence = [
            group[0]
            if len(group) == 1
            else Evidence(first=group[0].first, last=group[-1].last, row=next(merged))
            for group in groups
        ]


def _part_calls(document: Document, settings: CallSettings) -> list[Call]:
    prompts, values = settings.prompts, settings.values(document)
    return [
        make_call(
            part.key,
            prompts.part(number, document.title, values),
            part.token_ids,
            settings,
            attempts=document.attempts,
            document_key=document.key,
            stage=PART,
        )
        for number, part in enumerate(document.parts, 1)
    ]


def _groups(document: Document, settings: CallSettings, evidence: Sequence[Evidence]) -> list[list[Evidence]]:
    """Neighbours that fit one merge together, as many as there is room for."""
    frame = settings.prompts.merge(document.title, settings.values(document))
    room = settings.max_model_len - settings.max_tokens - frame.num_tokens
    lengths = settings.tokenizer.encode_documents([one.text for one in evidence]).lengths.tolist()
    groups: list[list[Evidence]] = []
    left = 0
    for one, length in zip(evidence, lengths, strict=True):
        if not groups or length > left:
            groups.append([])
            left = room
        groups[-1].append(one)
        left -= length
    return groups


def _merge_call(document: Document, settings: CallSettings, group: Sequence[Evidence]) -> Call:
    values = settings.values(document)
    text = "".join(one.text for one in group).rstrip()
    named = [word for pair in values.items() for word in pair]
    return make_call(
        input_hash(MERGE, document.title, *named, text),
        settings.prompts.merge(document.title, values),
        settings.tokenizer.encode_documents([text]).ids.tolist(),
        settings,
        attempts=document.attempts,
        document_key=document.key,
        stage=MERGE,
    )


def _finished(document: Document, done: Sequence[Summary], last: Summary) -> Summary:
    """The row of a document whose last call is done: the sums over all calls, the last one's words."""
    return replace(
        last,
        key=document.key,
        document_key=None,
        input_tokens=sum(row.input_tokens for row in done),
        output_tokens=sum(row.output_tokens for row in done),
        cached_tokens=sum(row.cached_tokens for row in done),
        kept_tokens=document.num_tokens,
        num_parts=len(document.parts),
        calls=tuple(row.key for row in done),
        attempts=document.attempts,
    )


def _failed(document: Document, done: Sequence[Summary], failed: Evidence) -> Summary:
    where = f"part {failed.first}" if failed.first == failed.last else f"parts {failed.first}–{failed.last}"
    row = replace(failed.row, error=f"{where} of {len(document.parts)}: {failed.row.error}")
    return replace(_finished(document, done, row), attempts=document.attempts + 1)


def _not_converged(document: Document, done: Sequence[Summary], evidence: Sequence[Evidence]) -> Summary:
    error = (
        f"the summaries of {len(document.parts)} parts do not fit together: {len(evidence)} are left, and "
        f"another merge would not make them fewer; lower output.max_tokens or raise engine.max_model_len"
    )
    row = replace(
        done[-1],
        status=MemoStatus.FAILED,
        summary=None,
        error_type=ErrorType.NOT_CONVERGED,
        error=error,
        finish_reason=None,
        flags=(),
    )
    return replace(_finished(document, done, row), attempts=document.attempts + 1)
