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


@dataclass(kw_only=True)
class Measured:
    """A batch measured. Rows `places` have a text; `keys` and `input_tokens` (of all its prompts) are theirs.

    `spool` has the documents to run, and `buckets` the number of each one's bucket.
    """

    places: npt.NDArray[np.int64]
    keys: npt.NDArray[np.uint64]
    input_tokens: npt.NDArray[np.int64]
    spool: pa.RecordBatch
    buckets: npt.NDArray[np.int64]
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    truncated: set[int] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Text:
    """A document that does not fit, with what its prompt names."""

    key: bytes
    text: str
    values: tuple[str, ...]
    token_ids: npt.NDArray[np.uint32]
    frame_tokens: int


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
        """Cut the documents that do not fit, or refuse them."""
        spooled = []
        for number in numbers.tolist():
            document = _Text(
                key=measured.keys[number].astype(">u8").tobytes(),
                text=texts[number],
                values=() if values is None else values[number],
                token_ids=batch.ids[batch.offsets[number] : batch.offsets[number + 1]],
                frame_tokens=int(frames[number]),
            )
            place = int(measured.places[number])
            row = None
            if self._settings.policy == "truncate":
                row = self._truncated(document)
                measured.truncated |= {place} if row else set()
            elif self._settings.policy == "map_reduce":
                row = self._parts(document)
            if row is None:
                measured.verdicts[place] = self._too_long(document)
            else:
                measured.input_tokens[number] = row.pop("input_tokens")
                spooled.append(row)
        if spooled:
            edges, is_cut = self._settings.edges, self._settings.policy == "truncate"
            bucket = int(assign(edges, np.array([self._settings.room]))[0]) if is_cut else len(edges) + 1
            long = pa.RecordBatch.from_pylist(spooled, schema=SCHEMA)
            measured.spool = pa.concat_batches([measured.spool, long])
            measured.buckets = np.concatenate([measured.buckets, np.full(len(spooled), bucket, np.int64)])

    def _truncated(self, document: _Text) -> dict[str, Any] | None:
        """The beginning of a document that fits; the whole document's key."""
        room = self._settings.room - document.frame_tokens
        if room < 1:
            return None
        kept = self._tokenizer.whole_characters(document.token_ids[:room])
        return _row(document, kept) | {"input_tokens": len(document.token_ids) + document.frame_tokens}

    def _parts(self, document: _Text) -> dict[str, Any] | None:
        """A long document in parts that fit."""
        named = self._named(document.values)
        title = title_of(document.text, named)
        room = self._settings.part_room(title, named)
        if room < SMALLEST_PART:
            return None
        parts = self._splitter.split(document.text, document.token_ids, room)
        words = self._words(document.values)
        keys = [
            input_hash(PART, str(number), title, *words, document.text[part.start : part.end])
            for number, part in enumerate(parts, 1)
        ]
        ids = np.concatenate([part.token_ids for part in parts])
        return _row(document, ids) | {
            "title": title,
            "part_keys": b"".join(keys),
            "part_lengths": [len(part.token_ids) for part in parts],
            "input_tokens": len(ids) + len(parts) * (self._settings.room - room),
        }

    def _too_long(self, document: _Text) -> Verdict:
        settings, length = self._settings, len(document.token_ids)
        error = (
            f"{length:,} tokens of document and {document.frame_tokens:,} of prompt with up to "
            f"{settings.max_tokens:,} of output do not fit max_model_len {settings.max_model_len:,}: "
            f"a document may have {max(0, settings.room - document.frame_tokens):,} tokens"
        )
        return Verdict(status=RowStatus.FAILED, error_type=ErrorType.PROMPT_TOO_LONG, error=error)


def _row(document: _Text, token_ids: npt.NDArray[np.uint32]) -> dict[str, Any]:
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
        *(pa.nulls(size, kinds[name]) for name in ("title", "part_keys", "part_lengths")),
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return rows if fits.all() else rows.filter(pa.array(fits))
