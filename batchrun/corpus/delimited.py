"""Reading CSV and TSV: every value is text as written; a broken row is one failed row with its line."""

import csv
import io
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import pyarrow as pa

from batchrun.corpus.batching import MAX_ROW_BYTES, bounded
from batchrun.corpus.columns import TEXT_NAMES, Columns, choose
from batchrun.corpus.files import CorpusFile, is_utf16, opened, unreadable
from batchrun.corpus.formats import Format
from batchrun.corpus.text import TextColumn
from batchrun.documents import DocumentBatch
from batchrun.errors import CorpusError
from batchrun.records import ErrorType

DELIMITERS = (",", ";", "\t", "|")
HEAD_BYTES = 1 << 16
PIECE_CHARS = 1 << 20
LINE_ENDS = ("\n", "\r")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """A row's fields, or what is wrong with it; it begins in `line`."""

    line: int
    fields: list[str]
    problem: str | None = None
    error_type: ErrorType = ErrorType.INVALID_CSV

    @property
    def size(self) -> int:
        return sum(map(len, self.fields))


def choose_columns(
    file: CorpusFile, *, text: str | None, id: str | None, kept: Sequence[str]
) -> tuple[Columns, dict[str, pa.DataType]]:
    """The columns by the header; all are strings. Raises CorpusError where there is no header, or a column
    is missing or ambiguous.
    """
    names = header(file)
    known = dict.fromkeys([*file.partitions, *names], "string")
    chosen = choose(file.label, known, text=text, id=id, kept=kept, own=names)
    for name in chosen.names:
        if names.count(name) > 1:
            raise CorpusError(f"{file.label} has several columns {name!r}", "Rename all but one of them.")
    id_type = pa.string() if chosen.id else pa.int64()
    return chosen, {"doc_id": id_type} | dict.fromkeys(kept, pa.string())


def read(file: CorpusFile, source: int, columns: Columns, id_type: pa.DataType) -> Iterator[DocumentBatch]:
    """The rows below the header, in order; blank lines are no rows. Raises CorpusError where the file can
    not be read. `id_type` is as for JSONL.
    """
    first_row = 0
    names = header(file)
    places = {name: number for number, name in enumerate(names)}
    for rows in bounded(_rows(file, len(names)), lambda row: row.size):
        yield _documents(file, source, first_row, rows, columns, id_type, places)
        first_row += len(rows)


def header(file: CorpusFile) -> list[str]:
    """The names of the columns, in order. Raises CorpusError where the first row is none."""
    row = next(_parsed(file), None)
    if row is None:
        raise CorpusError(
            f"{file.label} {'is empty (0 bytes)' if file.size == 0 else 'has no rows'}: a header is needed",
            "Write it again with the names of its columns in the first line, or take it out of the corpus.",
        )
    if row.problem:
        raise CorpusError(f"{file.label}: its header {row.problem}", "Mend its first line.")
    return [_shown(name) for name in row.fields]


def _rows(file: CorpusFile, width: int) -> Iterator[_Row]:
    rows = _parsed(file)
    next(rows)
    for row in rows:
        if row.problem is None and len(row.fields) != width:
            problem = f"has {len(row.fields):,} fields, and the header {width:,}"
            yield _Row(line=row.line, fields=[], problem=problem)
        else:
            yield row


def _parsed(file: CorpusFile) -> Iterator[_Row]:
    """The header and the rows, without blank lines."""
    csv.field_size_limit(MAX_ROW_BYTES)  # the module has but one limit, for all readers of a process
    number = 0
    try:
        with opened(file) as stream, _decoded(stream) as text:
            lines = _Lines(text)
            delimiter = _delimiter(file)
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
            while True:
                number = lines.number + 1
                try:
                    fields = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    lines.go_back()
                    yield _Row(line=number, fields=[], problem=f"is no CSV: {error}")
                except _TooLargeError:
                    reader = csv.reader(
                        lines, delimiter=delimiter, strict=True
                    )  # and a buffer of half a GB goes
                    yield _too_large(number, is_line=lines.go_back() is None)
                else:
                    lines.forget()
                    if fields:
                        yield _Row(line=number, fields=fields)
    except OSError as error:
        raise unreadable(file, error, f" after line {number - 1:,}") from error


def _too_large(number: int, *, is_line: bool) -> _Row:
    most = f"{MAX_ROW_BYTES >> 20} MiB"
    if is_line:
        problem, kind = f"is longer than {most}", ErrorType.TEXT_TOO_LARGE
    else:
        problem, kind = f"is no CSV: a quote is not closed within {most}", ErrorType.INVALID_CSV
    return _Row(line=number, fields=[], problem=problem, error_type=kind)


class _TooLargeError(Exception):
    """A row has more than MAX_ROW_BYTES characters."""


class _Lines:
    """Lines of a text, counted, with those of the present row kept: a quote that never ends takes all rows
    behind it for its field, and these are read again without it. Holds no more than MAX_ROW_BYTES characters.
    """

    def __init__(self, text: io.TextIOWrapper) -> None:
        self.number = 0
        self._lines = _bounded_lines(text)
        self._row: list[str | None] = []
        self._size = 0
        self._again: deque[str | None] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._lines)
        self._row.append(line)
        self.number += 1
        if line is None:
            raise _TooLargeError
        self._size += len(line)
        if self._size > MAX_ROW_BYTES:
            raise _TooLargeError
        return line

    def forget(self) -> None:
        """The row is good."""
        self._row.clear()
        self._size = 0

    def go_back(self) -> str | None:
        """Go on behind the first line of the row, which is returned."""
        first, *behind = self._row
        self._again.extendleft(reversed(behind))
        self.number -= len(behind)
        self.forget()
        return first


def _bounded_lines(text: io.TextIOWrapper) -> Iterator[str | None]:
    """Lines; None for one over MAX_ROW_BYTES characters, which is passed over in pieces."""
    while line := text.readline(PIECE_CHARS):
        if len(line) == PIECE_CHARS and not line.endswith(LINE_ENDS):
            yield _whole(line, text)
        else:
            yield line if len(line) <= MAX_ROW_BYTES else None


def _whole(begin: str, text: io.TextIOWrapper) -> str | None:
    pieces, size = [begin], len(begin)
    while piece := text.readline(PIECE_CHARS):
        size += len(piece)
        if size <= MAX_ROW_BYTES:
            pieces.append(piece)
        else:
            pieces.clear()
        if piece.endswith(LINE_ENDS):
            break
    return "".join(pieces) if size <= MAX_ROW_BYTES else None


@contextmanager
def _decoded(stream: io.BufferedReader) -> Iterator[io.TextIOWrapper]:
    """Text by its byte-order mark, else UTF-8; bytes that are none become surrogates, to be found later."""
    encoding, errors = ("utf-16", "replace") if is_utf16(stream) else ("utf-8-sig", "surrogateescape")
    text = io.TextIOWrapper(stream, encoding, errors, newline="")
    try:
        yield text
    finally:
        text.detach()


def _delimiter(file: CorpusFile) -> str:
    """Of TSV the tab; of CSV what parts a header with a text column, else one of the most columns; in doubt
    the comma.
    """
    if file.format is Format.TSV:
        return "\t"
    with opened(file) as stream, _decoded(stream) as text:
        lines = iter(partial(text.readline, HEAD_BYTES), "")
        head = next((line for line in lines if line.strip()), "")
    return max(DELIMITERS, key=lambda delimiter: _worth(head, delimiter))


def _worth(head: str, delimiter: str) -> tuple[bool, int]:
    names = next(csv.reader([head], delimiter=delimiter), [])
    return not set(TEXT_NAMES).isdisjoint(names), len(names)


def _documents(
    file: CorpusFile,
    source: int,
    first_row: int,
    rows: list[_Row],
    columns: Columns,
    id_type: pa.DataType,
    places: dict[str, int],
) -> DocumentBatch:
    texts = TextColumn()
    carried: dict[str, list[Any]] = {name: [] for name in ("doc_id", *columns.kept)}
    for number, row in enumerate(rows, first_row):
        where = f"{file.label}, line {row.line}"
        value = dict(file.partitions)
        if row.problem is None:
            value |= {name: row.fields[places[name]] for name in columns.names if name in places}
            texts.add(_bytes_if_broken(value[columns.text]), where)
        else:
            texts.fail(row.error_type, f"{where} {row.problem}")
        carried["doc_id"].append(_shown(value.get(columns.id)) if columns.id else number)
        for name in columns.kept:
            carried[name].append(_shown(value.get(name)))
    if id_type == pa.string():
        carried["doc_id"] = [None if value is None else str(value) for value in carried["doc_id"]]
    arrays = {name: pa.array(values, pa.string()) for name, values in carried.items() if name != "doc_id"}
    return texts.to_batch(source, first_row, {"doc_id": pa.array(carried["doc_id"], id_type)} | arrays)


def _bytes_if_broken(value: str | None) -> str | bytes | None:
    """The bytes as they stood in the file, where they are not UTF-8."""
    if value is None or value.isascii():
        return value
    data = value.encode(errors="surrogateescape")
    try:
        data.decode()
    except UnicodeDecodeError:
        return data
    return value


def _shown(value: str | None) -> Any:
    data = _bytes_if_broken(value)
    return data.decode(errors="replace") if isinstance(data, bytes) else data
