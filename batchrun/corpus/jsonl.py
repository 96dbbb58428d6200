"""Reading JSONL: each line parsed alone, so a broken line is one failed row."""

import codecs
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from batchrun.corpus.columns import Columns
from batchrun.corpus.inputs import CorpusFile
from batchrun.corpus.text import TextColumn, without_surrogates
from batchrun.documents import DocumentBatch, Verdict
from batchrun.errors import CorpusError
from batchrun.records import ErrorType, Flag, RowStatus

BATCH_BYTES = 8 << 20
BATCH_ROWS = 8192
PEEK_ROWS = 100


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


def peek(file: CorpusFile) -> dict[str, str]:
    """The keys of the first rows, with their JSON types; empty where no row is an object."""
    known: dict[str, str] = {}
    for _, line in islice(_lines(file), PEEK_ROWS):
        row = _parse(line)
        if isinstance(row, dict):
            for name, value in row.items():
                key = without_surrogates(name)
                if known.get(key, "null") == "null":
                    known[key] = _json_type(value)
    return known


def read(
    file: CorpusFile, source: int, columns: Columns, id_type: pa.DataType, types: JsonTypes
) -> Iterator[DocumentBatch]:
    """The rows of a file, in order; blank lines are no rows. Raises CorpusError where it can not be read.

    `id_type`, in which all inputs carry ids, is a string or, where row numbers are the ids, int64.
    """
    first_row = 0
    lines = _lines(file)
    while batch := _some(lines):
        yield _documents(file, source, first_row, batch, columns, id_type, types)
        first_row += len(batch)


def _lines(file: CorpusFile) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers from 1."""
    try:
        with file.path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                content = line.removeprefix(codecs.BOM_UTF8).strip() if number == 1 else line.strip()
                if content:
                    yield number, content
    except OSError as error:
        raise CorpusError(
            f"{file.path} can not be read: {error.strerror}", "Check the file and its disk."
        ) from error


def _some(lines: Iterator[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    batch = []
    size = 0
    for number, line in lines:
        batch.append((number, line))
        size += len(line)
        if len(batch) == BATCH_ROWS or size >= BATCH_BYTES:
            break
    return batch


def _documents(
    file: CorpusFile,
    source: int,
    first_row: int,
    lines: list[tuple[int, bytes]],
    columns: Columns,
    id_type: pa.DataType,
    types: JsonTypes,
) -> DocumentBatch:
    texts = TextColumn()
    carried: dict[str, list[Any]] = {name: [] for name in ("doc_id", *columns.kept)}
    for row, (number, line) in enumerate(lines, first_row):
        where = f"{file.path}, line {number}"
        value = _parse(line, texts)
        if isinstance(value, dict):
            texts.add(value.get(columns.text), where)
        else:
            texts.refuse(_broken(where, value))
            value = {}
        doc_id = value.get(columns.id) if columns.id else row
        carried["doc_id"].append(doc_id if id_type == pa.int64() else types.encode("doc_id", doc_id))
        for name in columns.kept:
            carried[name].append(types.encode(name, value.get(name)))
    arrays = [
        pa.array(carried["doc_id"], id_type),
        *(pa.array(carried[name], pa.string()) for name in columns.kept),
    ]
    return DocumentBatch(
        source=source,
        first_row=first_row,
        texts=texts.texts,
        verdicts=texts.verdicts,
        flags=texts.flags,
        carried=pa.RecordBatch.from_arrays(arrays, names=list(carried)),
    )


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


def _broken(where: str, value: Any) -> Verdict:
    is_error = isinstance(value, Exception)
    what = f"is no JSON: {value}" if is_error else f"is a JSON {_json_type(value)}, not an object"
    return Verdict(status=RowStatus.FAILED, error_type=ErrorType.INVALID_JSON, error=f"{where} {what}")


def _json_type(value: Any) -> str:
    names = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "null")
