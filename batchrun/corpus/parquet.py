"""Reading Parquet: streamed in batches of bounded size, whatever the row groups are."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from batchrun.corpus.columns import Columns
from batchrun.corpus.inputs import CorpusFile
from batchrun.corpus.text import TextColumn
from batchrun.documents import DocumentBatch, plain_values
from batchrun.errors import CorpusError

BATCH_BYTES = 8 << 20
BATCH_ROWS = 8192


def open_file(file: CorpusFile) -> pq.ParquetFile:
    """Raises CorpusError naming a file that is no Parquet."""
    try:
        return pq.ParquetFile(file.path, pre_buffer=False, buffer_size=1 << 20)
    except (pa.ArrowInvalid, OSError) as error:
        what = "is empty (0 bytes)" if file.size == 0 else "is not readable as Parquet"
        detail = "" if file.size == 0 else f": {str(error).splitlines()[0]}"
        raise CorpusError(
            f"{file.path} {what}{detail}", "Write it again, or take it out of the corpus."
        ) from error


def schema(file: CorpusFile) -> pa.Schema:
    with open_file(file) as parquet:
        return parquet.schema_arrow


def check_text_type(file: CorpusFile, column: str, kind: pa.DataType) -> None:
    """Raise CorpusError where a column holds no text."""
    values = kind.value_type if pt.is_dictionary(kind) else kind
    if not (_is_text(values) or _is_binary(values) or pt.is_null(values)):
        raise CorpusError(
            f"{file.path}: text column {column!r} is {kind}, not a string",
            "Name a column of strings with --text-column, or cast it.",
        )


def read(
    file: CorpusFile, source: int, columns: Columns, carried_types: dict[str, pa.DataType]
) -> Iterator[DocumentBatch]:
    """The rows of a file, in order. Raises CorpusError where the file turns out damaged."""
    names = list(dict.fromkeys([columns.text, *([columns.id] if columns.id else []), *columns.kept]))
    first_row = 0
    with open_file(file) as parquet:
        try:
            for batch in parquet.iter_batches(_batch_rows(parquet, names), columns=names):
                yield _documents(file, source, first_row, batch, columns, carried_types)
                first_row += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise CorpusError(
                f"{file.path} is damaged after row {first_row:,}: {str(error).splitlines()[0]}",
                "Write it again, or take it out of the corpus.",
            ) from error


def _documents(
    file: CorpusFile,
    source: int,
    first_row: int,
    batch: pa.RecordBatch,
    columns: Columns,
    types: dict[str, pa.DataType],
) -> DocumentBatch:
    texts = TextColumn()
    _add_texts(texts, batch[columns.text], f"{file.path}, row {first_row}")
    origin = {"doc_id": columns.id} | {name: name for name in columns.kept}
    numbers = pa.array(range(first_row, first_row + batch.num_rows), pa.int64())
    carried = [
        to_type(numbers if name is None else batch[name], types[column]) for column, name in origin.items()
    ]
    return DocumentBatch(
        source=source,
        first_row=first_row,
        texts=texts.texts,
        verdicts=texts.verdicts,
        flags=texts.flags,
        carried=pa.RecordBatch.from_arrays(carried, names=list(origin)),
    )


def to_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in the type that all inputs share; strings where they differ."""
    if column.type == kind:
        return column
    if not (isinstance(column.type, pa.BaseExtensionType) or _is_binary(column.type)):
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return column.cast(kind)
    return pa.array([_as_text(value) for value in plain_values(column)], kind)


def _as_text(value: Any) -> str | None:
    """A value as text, the same for the same value whatever else is in its batch; bytes that are no text in hex."""
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return value.decode()
        return value.hex()
    return None if value is None else str(value)


def _add_texts(texts: TextColumn, column: pa.Array, where: str) -> None:
    """Good strings go in one call; a batch with bytes that are not UTF-8 goes row by row."""
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_text(column.type):
        try:
            texts.add_all(column.to_pylist())
        except UnicodeDecodeError:
            column = column.cast(pa.large_binary())
        else:
            return
    for value in column.to_pylist():
        texts.add(value, where)


def _batch_rows(parquet: pq.ParquetFile, names: list[str]) -> int:
    """Rows that make about BATCH_BYTES in the columns read, by the file's own sizes."""
    metadata = parquet.metadata
    rows = size = 0
    for group in range(metadata.num_row_groups):
        columns = (metadata.row_group(group).column(i) for i in range(metadata.num_columns))
        size += sum(
            column.total_uncompressed_size
            for column in columns
            if column.path_in_schema.split(".")[0] in names
        )
        rows += metadata.row_group(group).num_rows
    return max(16, min(BATCH_ROWS, BATCH_BYTES * rows // max(size, 1)))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pt.is_binary(kind)
        or pt.is_large_binary(kind)
        or pt.is_binary_view(kind)
        or pt.is_fixed_size_binary(kind)
    )
