"""From Arrow batches to documents: the same for Parquet and for Arrow files."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from batchrun.corpus import batching
from batchrun.corpus.columns import Columns, choose
from batchrun.corpus.files import CorpusFile
from batchrun.corpus.text import TextColumn
from batchrun.documents import DocumentBatch, plain_values
from batchrun.errors import CorpusError


def with_readable_names(file: CorpusFile, schema: pa.Schema) -> pa.Schema:
    """The schema, whose names are text. Raises CorpusError where one is not."""
    try:
        schema.names  # noqa: B018 - decoded when they are looked at
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{file.label} has a column whose name is not UTF-8",
            "Write it again, or take it out of the corpus.",
        ) from error
    return schema


def choose_columns(
    file: CorpusFile, schema: pa.Schema, *, text: str | None, id: str | None, kept: Sequence[str]
) -> tuple[Columns, dict[str, pa.DataType]]:
    """The columns of a file and the types of those carried; its own come before partitions of their names.

    Raises CorpusError where they are missing, ambiguous, or hold no text.
    """
    types = dict.fromkeys(file.partitions, pa.string()) | dict(zip(schema.names, schema.types, strict=True))
    known = {name: str(kind) for name, kind in types.items()}
    chosen = choose(file.label, known, text=text, id=id, kept=kept, own=schema.names)
    for name in chosen.names:
        if schema.names.count(name) > 1:
            raise CorpusError(f"{file.label} has several columns {name!r}", "Rename all but one of them.")
    _check_text_type(file, chosen.text, types[chosen.text])
    id_type = types[chosen.id] if chosen.id else pa.int64()
    return chosen, {"doc_id": id_type} | {name: types[name] for name in kept}


def _check_text_type(file: CorpusFile, column: str, kind: pa.DataType) -> None:
    values = kind.value_type if pt.is_dictionary(kind) else kind
    if not (is_text(values) or is_binary(values) or pt.is_null(values)):
        raise CorpusError(
            f"{file.label}: text column {column!r} is {kind}, not a string",
            "Name a column of strings with --text-column, or cast it.",
        )


def documents(
    file: CorpusFile,
    source: int,
    batches: Iterator[pa.RecordBatch],
    columns: Columns,
    types: dict[str, pa.DataType],
) -> Iterator[DocumentBatch]:
    """The rows of a file's batches, in order, in batches of bounded size.

    Raises CorpusError where the file turns out damaged.
    """
    first_row = 0
    try:
        for batch in batches:
            whole = _with_partitions(batch, file, columns)
            for piece in _pieces(whole, columns.text):
                yield _documents(file, source, first_row, piece, columns, types)
                first_row += piece.num_rows
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(
            f"{file.label} is damaged after row {first_row:,}: {str(error).splitlines()[0]}",
            "Write it again, or take it out of the corpus.",
        ) from error


def _with_partitions(batch: pa.RecordBatch, file: CorpusFile, columns: Columns) -> pa.RecordBatch:
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name in columns.names:
        if name not in arrays:
            arrays[name] = pa.repeat(pa.scalar(file.partitions[name], pa.string()), batch.num_rows)
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _pieces(batch: pa.RecordBatch, text: str) -> Iterator[pa.RecordBatch]:
    """The batch, halved until its texts fit: repeated texts take little room in a file and much here."""
    if batch.num_rows > 1 and (
        batch.num_rows > batching.BATCH_ROWS or _text_bytes(batch[text]) > 2 * batching.BATCH_BYTES
    ):
        middle = batch.num_rows // 2
        yield from _pieces(batch.slice(0, middle), text)
        yield from _pieces(batch.slice(middle), text)
    elif batch.num_rows:
        yield batch


def _text_bytes(column: pa.Array) -> int:
    """Of the rows alone: views and dictionaries share their bytes with other rows."""
    if pt.is_dictionary(column.type):
        lengths = _lengths(column.dictionary).take(column.indices)
    else:
        lengths = _lengths(column)
    return pc.sum(lengths).as_py() or 0


def _lengths(values: pa.Array) -> pa.Array:
    """Bytes of each value. Arrow counts no views; each has its length in the first 4 of its 16 bytes."""
    if pt.is_null(values.type):
        return pa.nulls(len(values), pa.int32())
    if not (pt.is_string_view(values.type) or pt.is_binary_view(values.type)):
        return pc.binary_length(unchecked_bytes(values))
    heads = np.frombuffer(values.buffers()[1], np.int32)[::4][values.offset : values.offset + len(values)]
    return pc.if_else(values.is_valid(), pa.array(heads), None)


def _documents(
    file: CorpusFile,
    source: int,
    first_row: int,
    batch: pa.RecordBatch,
    columns: Columns,
    types: dict[str, pa.DataType],
) -> DocumentBatch:
    texts = TextColumn()
    _add_texts(texts, batch[columns.text], f"{file.label}, row {first_row}")
    origin = {"doc_id": columns.id} | {name: name for name in columns.kept}
    numbers = pa.array(range(first_row, first_row + batch.num_rows), pa.int64())
    return texts.to_batch(
        source,
        first_row,
        {
            column: to_type(numbers if name is None else batch[name], types[column])
            for column, name in origin.items()
        },
    )


def to_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in the type that all inputs share; strings where they differ."""
    if column.type == kind:
        return column
    if not (isinstance(column.type, pa.BaseExtensionType) or is_binary(column.type)):
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return column.cast(kind)
    return pa.array([_as_text(value) for value in plain_values(column)], kind)


def as_words(column: pa.Array) -> pa.Array:
    """A column as words of a prompt. NaN is none, as null is; bytes that are no text become U+FFFD."""
    if pt.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    kind = column.type.value_type if pt.is_dictionary(column.type) else column.type
    if not (is_text(kind) or is_binary(kind)):
        return to_type(column, pa.string())
    values = [
        value.decode(errors="replace") if isinstance(value, bytes) else value for value in text_values(column)
    ]
    return pa.array(values, pa.string())


def _as_text(value: Any) -> str | None:
    """A value as text, the same for the same value whatever else is in its batch; bytes that are no text in hex."""
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return value.decode()
        return value.hex()
    return None if value is None else str(value)


def _add_texts(texts: TextColumn, column: pa.Array, where: str) -> None:
    """Good strings go in one call; a batch with bytes that are not UTF-8 goes row by row."""
    values = text_values(column)
    if any(isinstance(value, bytes) for value in values):
        for value in values:
            texts.add(value, where)
    else:
        texts.add_all(values)


def text_values(column: pa.Array) -> list[Any]:
    """Strings, or bytes where the column holds bytes or some of it is not UTF-8. A value of a small
    dictionary is one object, however many rows have it.
    """
    if pt.is_dictionary(column.type) and len(column.dictionary) > len(column):
        column = column.dictionary_decode()
    if pt.is_dictionary(column.type):
        values = text_values(column.dictionary)
        return [None if index is None else values[index] for index in column.indices.to_pylist()]
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return list(unchecked_bytes(column).to_pylist())


def unchecked_bytes(column: pa.Array) -> pa.Array:
    """The bytes of strings, unchecked and not copied."""
    if not is_text(column.type):
        return column
    if pt.is_string_view(column.type):
        return column.view(pa.binary_view())
    return column.view(pa.large_binary() if pt.is_large_string(column.type) else pa.binary())


def is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    return bool(
        pt.is_binary(kind)
        or pt.is_large_binary(kind)
        or pt.is_binary_view(kind)
        or pt.is_fixed_size_binary(kind)
    )
