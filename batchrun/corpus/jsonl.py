"""Reading JSONL: each line parsed alone, so a broken line is one failed row."""

import codecs
import io
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any, AnyStr

import pyarrow as pa

from batchrun.corpus.batching import MAX_ROW_BYTES, bounded
from batchrun.corpus.columns import TEXT_NAMES, Columns, choose
from batchrun.corpus.files import CorpusFile, is_utf16, opened, unreadable
from batchrun.corpus.text import TextColumn, without_surrogates
from batchrun.documents import DocumentBatch, Verdict
from batchrun.records import ErrorType, Flag, RowStatus

LINE_ENDS = ("\n", ord("\n"))
PEEK_ROWS = 100
LOOK_BYTES = 16 << 20
"""So far into a file a column is looked for that its first rows do not have: a quarter of a second."""


class JsonTypes:
    """The kinds of JSON values seen in each carried column, so that integers come out as integers."""

    def __init__(self) -> None:
        self.kinds: dict[str, set[str]] = {}

    def encode(self, column: str, value: Any) -> str | None:
        """A value as the text it is carried as."""
        if value is None:
            return None
        kind = type(value).__name__
        if kind == "int" and not -(1 << 63) <= value < 1 << 63:
            kind = "str"
        self.kinds.setdefault(column, set()).add(kind)
        return without_surrogates(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))

    def arrow_type(self, column: str) -> pa.DataType:
        """The type that holds every value seen as it was; strings where kinds differ."""
        kinds = self.kinds.get(column, set())
        single = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
        return single.get(next(iter(kinds)), pa.string()) if len(kinds) == 1 else pa.string()


@dataclass(frozen=True, kw_only=True)
class Head:
    """The keys of the first rows, with their JSON types, none where no row is an object. `is_whole`: there are
    no other rows.
    """

    known: dict[str, str]
    num_bytes: int
    is_whole: bool


def peek(file: CorpusFile, wanted: Collection[str] = (), one_of: Collection[str] = ()) -> Head:
    """Look at the first rows; as far as LOOK_BYTES where one of `wanted`, or each of `one_of`, is not in them."""
    known: dict[str, str] = {}
    num_bytes = 0
    for number, line in enumerate(_lines(file)):
        is_found = known.keys() >= set(wanted) and (not one_of or not known.keys().isdisjoint(one_of))
        if number >= PEEK_ROWS and (is_found or num_bytes >= LOOK_BYTES):
            return Head(known=known, num_bytes=num_bytes, is_whole=False)
        num_bytes += _size(line)
        _add_keys(known, line)
    return Head(known=known, num_bytes=num_bytes, is_whole=True)


def _add_keys(known: dict[str, str], line: "_Line") -> None:
    row = None if line.content is None else _parse(line.content)
    if isinstance(row, dict):
        for name, value in row.items():
            key = without_surrogates(name)
            if known.get(key, "null") == "null":
                known[key] = _json_type(value)


def may_hold_objects(file: CorpusFile) -> bool:
    """Whether there is an object among the first rows, or no row at all, or one too long to be looked at."""
    is_empty = True
    for line in islice(_lines(file), PEEK_ROWS):
        is_empty = False
        if line.content is None or isinstance(_parse(line.content), dict):
            return True
    return is_empty


def choose_columns(
    file: CorpusFile,
    *,
    text: str | None,
    id: str | None,
    kept: Sequence[str],
    elsewhere: Collection[str] = (),
) -> tuple[Columns, dict[str, pa.DataType]]:
    """The columns of a file and the types they are carried in. A kept one may be missing, and so may text and id
    where other files have them (`elsewhere`) and this one is too large to be looked through.

    Raises CorpusError where text or id are missing or ambiguous.
    """
    wanted = {name for name in (text, id) if name is not None} - file.partitions.keys()
    head = peek(file, wanted, () if text else TEXT_NAMES)
    known = head.known
    if known and not head.is_whole:
        known = dict.fromkeys(wanted.intersection(elsewhere), "null") | known
    if not known:  # no row is an object, so none has an id of any type
        return Columns(id=id, text=text or "text", kept=tuple(kept)), {}
    own, known = known, dict.fromkeys(file.partitions, "string") | known
    chosen = choose(file.label, known, text=text, id=id, own=own)
    carried = dict.fromkeys(kept, pa.string())
    chosen = Columns(id=chosen.id, text=chosen.text, kept=tuple(kept))
    return chosen, {"doc_id": pa.string() if chosen.id else pa.int64()} | carried


def read(
    file: CorpusFile, source: int, columns: Columns, id_type: pa.DataType, types: JsonTypes
) -> Iterator[DocumentBatch]:
    """The rows of a file, in order; blank lines are no rows. Raises CorpusError where it can not be read.

    `id_type`, in which all inputs carry ids, is a string or, where row numbers are the ids, int64.
    """
    first_row = 0
    for lines in bounded(_lines(file), _size):
        yield _documents(file, source, first_row, lines, columns, id_type, types)
        first_row += len(lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    """A line that is not blank, by its number from 1; without content where it is too long to be held."""

    number: int
    content: bytes | None


def _size(line: _Line) -> int:
    return len(line.content or b"")


def _lines(file: CorpusFile) -> Iterator[_Line]:
    number = 0
    try:
        with opened(file) as stream:
            for number, line in enumerate(_raw_lines(stream), 1):
                content = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                if len(content) > MAX_ROW_BYTES:
                    yield _Line(number=number, content=None)
                elif content := content.strip():
                    yield _Line(number=number, content=content)
    except OSError as error:
        raise unreadable(file, error, f" after line {number:,}") from error


def _raw_lines(stream: io.BufferedReader) -> Iterator[bytes]:
    """Lines in UTF-8; of one over MAX_ROW_BYTES its beginning alone, a byte longer than that."""
    if not is_utf16(stream):
        yield from _pieces(stream)
        return
    text = io.TextIOWrapper(stream, "utf-16", "replace", newline="\n")
    try:
        yield from (line.encode() for line in _pieces(text))
    finally:
        text.detach()


def _pieces(stream: IO[AnyStr]) -> Iterator[AnyStr]:
    while line := stream.readline(MAX_ROW_BYTES + 1):
        yield line
        while len(line) > MAX_ROW_BYTES and line[-1] not in LINE_ENDS:
            line = stream.readline(MAX_ROW_BYTES + 1)


def _documents(
    file: CorpusFile,
    source: int,
    first_row: int,
    lines: list[_Line],
    columns: Columns,
    id_type: pa.DataType,
    types: JsonTypes,
) -> DocumentBatch:
    texts = TextColumn()
    carried: dict[str, list[Any]] = {name: [] for name in ("doc_id", *columns.kept)}
    for row, line in enumerate(lines, first_row):
        value = file.partitions | _add_line(texts, line, columns.text, file)
        doc_id = value.get(columns.id) if columns.id else row
        carried["doc_id"].append(doc_id if id_type == pa.int64() else types.encode("doc_id", doc_id))
        for name in columns.kept:
            carried[name].append(types.encode(name, value.get(name)))
    arrays = {name: pa.array(values, pa.string()) for name, values in carried.items() if name != "doc_id"}
    return texts.to_batch(source, first_row, {"doc_id": pa.array(carried["doc_id"], id_type)} | arrays)


def _add_line(texts: TextColumn, line: _Line, text: str, file: CorpusFile) -> dict[str, Any]:
    """Add the text of a line, or why it has none; returns the line's object, empty where it is none."""
    where = f"{file.label}, line {line.number}"
    if line.content is None:
        texts.fail(ErrorType.TEXT_TOO_LARGE, f"{where} is longer than {MAX_ROW_BYTES >> 20} MiB")
        return {}
    value = _parse(line.content, texts)
    if not isinstance(value, dict):
        texts.fail(ErrorType.INVALID_JSON, f"{where} {_what_is_wrong(value)}")
        return {}
    if text in value or text in file.partitions:
        texts.add(value.get(text, file.partitions.get(text)), where)
    else:
        texts.refuse(_missing(where, text))
    return value


def _missing(where: str, text: str) -> Verdict:
    """Spark and others leave the key of a null out, so that a missing one is a null."""
    error = f"{where} has no key {text!r}, which counts as null"
    return Verdict(status=RowStatus.SKIPPED, error_type=ErrorType.EMPTY_TEXT, error=error)


def _parse(line: bytes, texts: TextColumn | None = None) -> Any:
    """The value of a line, or the error that it gave."""
    try:
        content = line.decode()
    except UnicodeDecodeError:
        content = line.decode(errors="replace")
        if texts is not None:
            texts.flag(Flag.REPLACED_CHARACTERS)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:  # ValueError: also a number of more than 4,300 digits
        return error


def _what_is_wrong(value: Any) -> str:
    if isinstance(value, Exception):
        return f"is no JSON: {value}"
    return f"is a JSON {_json_type(value)}, not an object"


def _json_type(value: Any) -> str:
    names = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "null")
