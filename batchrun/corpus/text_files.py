"""Reading text and HTML files: each is one row, and a batch has many."""

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import pyarrow as pa

from batchrun.corpus import html
from batchrun.corpus.batching import MAX_ROW_BYTES, bounded
from batchrun.corpus.columns import Columns, choose
from batchrun.corpus.files import CorpusFile, is_damage, opened, unreadable
from batchrun.corpus.formats import Format
from batchrun.corpus.text import TextColumn
from batchrun.documents import DocumentBatch
from batchrun.errors import CorpusError
from batchrun.records import ErrorType, Flag

NUMBERED = tuple[int, CorpusFile]
"""A file with its number among the corpus' sources."""

PIECE_BYTES = 1 << 16

MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins as the mark of UTF-16 does
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Content:
    number: int
    file: CorpusFile
    data: bytes
    error_type: ErrorType | None = None
    problem: str = ""


def choose_columns(
    file: CorpusFile, *, text: str | None, id: str | None, kept: Sequence[str]
) -> tuple[Columns, dict[str, pa.DataType]]:
    """`text`, `id` (the path below the folder given) and partitions. Raises CorpusError for any other."""
    known = dict.fromkeys(["id", "text", *file.partitions], "string")
    chosen = choose(file.label, known, text=text or "text", id=id or "id", kept=kept)
    return chosen, dict.fromkeys(["doc_id", *kept], pa.string())


def read(
    files: Sequence[NUMBERED], columns: Sequence[Columns], kept: Sequence[str]
) -> Iterator[DocumentBatch]:
    """A row for each file, in order. Raises CorpusError where one can not be read.

    `columns` are those of each file; kept columns have one name in all.
    """
    columns_of = dict(zip((number for number, _ in files), columns, strict=True))
    num_files = 0
    for contents in bounded(_contents(files), lambda content: len(content.data)):
        texts = TextColumn()
        values: dict[str, list[str | None]] = {name: [] for name in ("doc_id", *kept)}
        for content in contents:
            chosen = columns_of[content.number]
            row = _add_row(texts, content, chosen.text)
            values["doc_id"].append(row[chosen.id or "id"])
            for name in kept:
                values[name].append(row.get(name))
        yield texts.to_batch(
            tuple(content.number for content in contents),
            num_files,
            {name: pa.array(column, pa.string()) for name, column in values.items()},
        )
        num_files += len(contents)


def _contents(files: Sequence[NUMBERED]) -> Iterator[_Content]:
    for number, file in files:
        try:
            with opened(file) as stream:
                data = _read_up_to(stream, MAX_ROW_BYTES + 1)
        except (OSError, CorpusError) as error:
            if isinstance(error, OSError) and not is_damage(error):
                raise unreadable(file, error) from error
            reason = error.reason if isinstance(error, CorpusError) else unreadable(file, error).reason
            yield _Content(
                number=number, file=file, data=b"", error_type=ErrorType.DAMAGED_FILE, problem=reason
            )
            continue
        if len(data) > MAX_ROW_BYTES:
            problem = f"{file.label} is larger than {MAX_ROW_BYTES >> 20} MiB"
            yield _Content(
                number=number, file=file, data=b"", error_type=ErrorType.TEXT_TOO_LARGE, problem=problem
            )
        else:
            yield _Content(number=number, file=file, data=data)


def _read_up_to(stream: IO[bytes], limit: int) -> bytes:
    """In pieces, for a small file shall not cost a buffer of the limit."""
    pieces = []
    while limit > 0 and (piece := stream.read(min(limit, PIECE_BYTES))):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


def _add_row(texts: TextColumn, content: _Content, text: str) -> dict[str, str | None]:
    """Add the text of a file, or why it has none; returns its columns."""
    file = content.file
    row = dict(file.partitions) | {"id": file.name, "text": None}
    if content.error_type is not None:
        texts.fail(content.error_type, content.problem)
        return row
    decoded, is_replaced = _decode(content.data, file.format)
    row["text"] = html.text_of(decoded) if file.format is Format.HTML else decoded
    if is_replaced and text == "text":
        texts.flag(Flag.REPLACED_CHARACTERS)
    texts.add(row[text], file.label)
    return row


def _decode(data: bytes, kind: Format) -> tuple[str, bool]:
    """The text by its byte-order mark, an HTML page's also by what it declares, else UTF-8; and whether
    characters had to be replaced.
    """
    found = ((mark, name) for mark, name in MARKS if data.startswith(mark))
    mark, encoding = next(found, (b"", html.charset(data) if kind is Format.HTML else "utf-8"))
    data = data[len(mark) :]
    try:
        return data.decode(encoding), False
    except UnicodeDecodeError:
        return data.decode(encoding, errors="replace"), True
