"""Reading Parquet: streamed in batches of bounded size, whatever the row groups are."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from batchrun.corpus import arrow_rows, batching
from batchrun.corpus.columns import Columns
from batchrun.corpus.files import CorpusFile
from batchrun.documents import DocumentBatch
from batchrun.errors import CorpusError

DICTIONARY_BYTES = 4 << 20
"""A chunk up to this size, and an index for each row, may hold a few long texts that many rows share: it is
read as a dictionary, for Arrow would unpack 900 MB at once of 2,000 such rows. Writers end dictionaries at 1 MiB.
"""
INDEX_BYTES = 4


def schema(file: CorpusFile) -> pa.Schema:
    """Raises CorpusError naming a file that is no Parquet."""
    with _opened(file) as parquet:
        return arrow_rows.with_readable_names(file, parquet.schema_arrow)


def read(
    file: CorpusFile, source: int, columns: Columns, carried_types: dict[str, pa.DataType]
) -> Iterator[DocumentBatch]:
    """The rows of a file, in order. Raises CorpusError where the file turns out damaged."""
    return arrow_rows.documents(file, source, _batches(file, columns), columns, carried_types)


def _batches(file: CorpusFile, columns: Columns) -> Iterator[pa.RecordBatch]:
    with _opened(file) as parquet:
        names = [name for name in columns.names if name in parquet.schema_arrow.names]
        shared = [name for name in names if name == columns.text and _may_be_shared(parquet, name)]
        rows = _batch_rows(parquet, names)
    with _opened(file, shared) as parquet:
        yield from parquet.iter_batches(rows, columns=names)


def _opened(file: CorpusFile, read_dictionary: list[str] | None = None) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(
            file.path, pre_buffer=False, buffer_size=1 << 20, read_dictionary=read_dictionary
        )
    except (pa.ArrowException, OSError) as error:
        what = "is empty (0 bytes)" if file.size == 0 else "is not readable as Parquet"
        detail = "" if file.size == 0 else f": {str(error).splitlines()[0]}"
        raise CorpusError(
            f"{file.label} {what}{detail}", "Write it again, or take it out of the corpus."
        ) from error


def _may_be_shared(parquet: pq.ParquetFile, name: str) -> bool:
    """Whether long texts may stand in a small file once each, for many rows."""
    if not arrow_rows.is_text(parquet.schema_arrow.field(name).type):
        return False
    return all(
        chunk.has_dictionary_page
        and chunk.total_uncompressed_size <= DICTIONARY_BYTES + INDEX_BYTES * chunk.num_values
        for chunk in _chunks(parquet, [name])
    )


def _batch_rows(parquet: pq.ParquetFile, names: list[str]) -> int:
    """Rows that make about BATCH_BYTES in the columns read, by the file's own sizes."""
    size = sum(chunk.total_uncompressed_size for chunk in _chunks(parquet, names))
    rows = parquet.metadata.num_rows
    return int(max(16, min(batching.BATCH_ROWS, batching.BATCH_BYTES * rows // max(size, 1))))


def _chunks(parquet: pq.ParquetFile, names: list[str]) -> list[pq.ColumnChunkMetaData]:
    metadata = parquet.metadata
    groups = (metadata.row_group(group) for group in range(metadata.num_row_groups))
    chunks = (group.column(number) for group in groups for number in range(metadata.num_columns))
    return [
        chunk
        for chunk in chunks
        if any(f"{chunk.path_in_schema}.".startswith(f"{name}.") for name in names)  # names may have dots
    ]
