"""What each document of a batch comes to: its key, its tokens, whether it fits, and how it is cut if not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from batchrun.documents import DocumentBatch, Verdict
from batchrun.keys import PART, document_key, input_hash
from batchrun.planning.buckets import assign
from batchrun.planning.spool import SCHEMA
from batchrun.prompts.frames import Prompts
from batchrun.prompts.parts import Splitter, title_of
from batchrun.prompts.token_batch import TokenBatch
from batchrun.prompts.tokenizer import Tokenizer
from batchrun.records import ErrorType, RowStatus

HIGHEST_PART = 99_999
"""The part's number that a prompt is measured with."""
SMALLEST_PART = 16
"""Tokens of a part from which it is worth asking for a summary of it."""


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """What a prompt costs beside its document, and what fits, in tokens; what becomes of what does not fit."""

    prompts: Prompts
    max_tokens: int
    max_model_len: int
    edges: tuple[int, ...]
    policy: str
    overlap_share: float = 0.0
    variables: tuple[str, ...] = ()

    @property
    def room(self) -> int:
        """For a prompt and what stands in it."""
        return self.max_model_len - self.max_tokens

    def part_room(self, title: str, values: Mapping[str, str]) -> int:
        """For a part of a document with this title, whatever its number."""
        return self.room - self.prompts.part(HIGHEST_PART, title, values).num_tokens

    @cached_property
    def longest_document(self) -> int:
        """Of documents whose prompt names no column."""
        return self.room - self.prompts.document({}).num_tokens

    def tokens_read(self, of_prompts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Of documents whose prompts have so many tokens whole, what their calls read: less of a truncated one; of
        one in parts an estimate, as if parts were full and each summary as long as may be and merged once.
        """
        is_long = of_prompts > self.room
        if self.policy == "truncate" or not is_long.any():
            return np.minimum(of_prompts, self.room)
        part_room = max(1, self.part_room("", {}))
        frame = self.room - part_room
        text = of_prompts - self.prompts.document({}).num_tokens
        parts = np.ceil(text / (part_room * (1 - self.overlap_share)))
        summaries = parts * self.max_tokens
        calls = parts + np.ceil(summaries / part_room)
        read = text + (parts - 1) * self.overlap_share * part_room + summaries + calls * frame
        return np.where(is_long, read.astype(np.int64), of_prompts)


@dataclass(frozen=True, kw_only=True, slots=True)
class LongDocument:
    """A document that does not fit, before it is cut."""

    key: bytes
    text: str
    values: tuple[str, ...]
    token_ids: npt.NDArray[np.uint32]


@dataclass(kw_only=True)
class Measured:
    """A batch measured. Rows `places` have a text; `keys` and `input_tokens` (document and prompt) are theirs.

    `spool` has the documents to run that fit, and `buckets` the number of each one's bucket; `long` those
    that are cut into parts if they are to run.
    """

    places: npt.NDArray[np.int64]
    keys: npt.NDArray[np.uint64]
    input_tokens: npt.NDArray[np.int64]
    spool: pa.RecordBatch
    buckets: npt.NDArray[np.int64]
    long: list[LongDocument] = field(default_factory=list)
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    truncated: set[int] = field(default_factory=set)


class Measure:
    """Measures batches. For one thread."""

    def __init__(self, tokenizer: Tokenizer, settings: PlanSettings) -> None:
        self._tokenizer = tokenizer
        self._settings = settings
        self._splitter = Splitter(tokenizer, overlap_share=settings.overlap_share)

    def measure(self, rows: DocumentBatch) -> Measured:
        """Tokenize and hash a batch; documents that do not fit are cut or refused by the policy."""
        places = np.flatnonzero([text is not None for text in rows.texts])
        texts = [text for text in rows.texts if text is not None]
        values = self._values(rows, places)
        batch = self._tokenizer.encode_documents(texts)
        frames = self._frame_tokens(values, len(texts))
        keys = self._keys(texts, values)
        fits = batch.lengths + frames <= self._settings.room
        input_tokens = batch.lengths + frames
        measured = Measured(
            places=places,
            keys=keys,
            input_tokens=input_tokens,
            spool=_whole_documents(keys, batch, values, fits),
            buckets=assign(self._settings.edges, input_tokens)[fits],
        )
        if not fits.all():
            self._add_long(measured, np.flatnonzero(~fits), batch, texts, values, frames)
        return measured

    def _values(self, rows: DocumentBatch, places: npt.NDArray[np.int64]) -> list[tuple[str, ...]] | None:
        if not self._settings.variables:
            return None
        assert rows.variables is not None, "the corpus gives the columns that the prompt names"
        columns = [rows.variables[name].to_pylist() for name in self._settings.variables]
        every = [tuple(value or "" for value in row) for row in zip(*columns, strict=True)]
        return [every[place] for place in places]

    def _frame_tokens(self, values: Sequence[tuple[str, ...]] | None, num: int) -> npt.NDArray[np.int64]:
        """Tokens of the prompt around each document."""
        prompts = self._settings.prompts
        if values is None:
            return np.full(num, prompts.document({}).num_tokens, np.int64)
        words = [prompts.document_words(self._named(row)) for row in values]
        return self._tokenizer.encode_documents(words).lengths + prompts.template_tokens

    def _named(self, values: tuple[str, ...]) -> dict[str, str]:
        return dict(zip(self._settings.variables, values, strict=True)) if values else {}

    def _keys(self, texts: Sequence[str], values: Sequence[tuple[str, ...]] | None) -> npt.NDArray[np.uint64]:
        """The keys of n texts as n rows of two halves, high first."""
        if values is None:
            digests = [document_key(text) for text in texts]
        else:
            digests = [document_key(text, self._words(row)) for text, row in zip(texts, values, strict=True)]
        return halves(digests)

    def _words(self, values: tuple[str, ...]) -> list[str]:
        return [word for pair in self._named(values).items() for word in pair]

    def _add_long(
        self,
        measured: Measured,
        numbers: npt.NDArray[np.int64],
        batch: TokenBatch,
        texts: Sequence[str],
        values: Sequence[tuple[str, ...]] | None,
        frames: npt.NDArray[np.int64],
    ) -> None:
        """Sort out the documents that do not fit: to be cut, truncated, or refused."""
        truncated = []
        for number in numbers.tolist():
            document = LongDocument(
                key=measured.keys[number].astype(">u8").tobytes(),
                text=texts[number],
                values=() if values is None else values[number],
                token_ids=batch.ids[batch.offsets[number] : batch.offsets[number + 1]],
            )
            place, room = int(measured.places[number]), self._settings.room - int(frames[number])
            if self._settings.policy == "truncate" and room >= SMALLEST_PART:
                measured.truncated.add(place)
                truncated.append(_row(document, self._tokenizer.whole_characters(document.token_ids[:room])))
            elif self._settings.policy == "map_reduce" and self._part_room(document) >= SMALLEST_PART:
                measured.long.append(document)
            else:
                measured.verdicts[place] = self._too_long(len(document.token_ids), int(frames[number]))
        if truncated:
            bucket = assign(self._settings.edges, np.array([self._settings.room]))
            rows = pa.RecordBatch.from_pylist(truncated, schema=SCHEMA)
            measured.spool = pa.concat_batches([measured.spool, rows])
            measured.buckets = np.concatenate([measured.buckets, np.repeat(bucket, len(truncated))])

    def _part_room(self, document: LongDocument) -> int:
        named = self._named(document.values)
        return self._settings.part_room(title_of(document.text, named), named)

    def cut(self, document: LongDocument) -> pa.RecordBatch:
        """A long document as a row of the spool, in parts that fit."""
        named = self._named(document.values)
        title = title_of(document.text, named)
        parts = self._splitter.split(
            document.text, document.token_ids, self._settings.part_room(title, named)
        )
        words = self._words(document.values)
        keys = [
            input_hash(PART, str(number), title, *words, document.text[part.start : part.end])
            for number, part in enumerate(parts, 1)
        ]
        row = _row(document, np.concatenate([part.token_ids for part in parts])) | {
            "title": title,
            "part_keys": b"".join(keys),
            "part_lengths": [len(part.token_ids) for part in parts],
            "num_tokens": len(document.token_ids),
        }
        return pa.RecordBatch.from_pylist([row], schema=SCHEMA)

    def _too_long(self, num_tokens: int, frame_tokens: int) -> Verdict:
        settings = self._settings
        error = (
            f"{num_tokens:,} tokens of document and {frame_tokens:,} of prompt with up to "
            f"{settings.max_tokens:,} of output do not fit max_model_len {settings.max_model_len:,}: a document "
            f"may have {max(0, settings.room - frame_tokens):,} tokens; raise engine.max_model_len"
            + (", or choose another long_documents.policy" if settings.policy == "fail" else "")
        )
        return Verdict(status=RowStatus.FAILED, error_type=ErrorType.PROMPT_TOO_LONG, error=error)


def _row(document: LongDocument, token_ids: npt.NDArray[np.uint32]) -> dict[str, Any]:
    high, low = int.from_bytes(document.key[:8], "big"), int.from_bytes(document.key[8:], "big")
    return {
        "hash_hi": high,
        "hash_lo": low,
        "token_ids": np.ascontiguousarray(token_ids, np.uint32).tobytes(),
        "values": list(document.values) if document.values else None,
    }


def halves(digests: Sequence[bytes]) -> npt.NDArray[np.uint64]:
    """N keys as n rows of two halves, high first."""
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64).reshape(-1, 2)


def _whole_documents(
    keys: npt.NDArray[np.uint64],
    batch: TokenBatch,
    values: Sequence[tuple[str, ...]] | None,
    fits: npt.NDArray[np.bool_],
) -> pa.RecordBatch:
    """The documents of a batch that fit, as spool rows, over the tokenizer's own buffer."""
    size = len(keys)
    buffers = [None, pa.py_buffer(batch.offsets * 4), pa.py_buffer(batch.ids)]
    token_ids = pa.LargeBinaryArray.from_buffers(pa.large_binary(), size, buffers)
    kinds = {name: SCHEMA.field(name).type for name in SCHEMA.names}
    columns = [
        pa.array(keys[:, 0]),
        pa.array(keys[:, 1]),
        token_ids,
        pa.nulls(size, kinds["values"]) if values is None else pa.array(map(list, values), kinds["values"]),
        *(pa.nulls(size, kinds[name]) for name in SCHEMA.names[4:]),  # of long documents
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return rows if fits.all() else rows.filter(pa.array(fits))
