"""Reading Arrow files: Hugging Face datasets (`.arrow`, a stream) and Feather (`.feather`, with a footer)."""

from collections.abc import Iterator

import pyarrow as pa

from batchrun.corpus import arrow_rows
from batchrun.corpus.columns import Columns
from batchrun.corpus.files import CorpusFile
from batchrun.documents import DocumentBatch
from batchrun.errors import CorpusError

MAGIC = b"ARROW1"


def schema(file: CorpusFile) -> pa.Schema:
    """Raises CorpusError naming a file that is no Arrow file."""
    if file.size == 0:
        raise CorpusError(f"{file.label} is empty (0 bytes)", "Write it again, or take it out of the corpus.")
    try:
        with _mapped(file) as source:
            reader = pa.ipc.open_file(source) if _has_footer(source) else pa.ipc.open_stream(source)
            found = reader.schema
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(
            f"{file.label} is not readable as Arrow: {str(error).splitlines()[0]}",
            "Write it again, or take it out of the corpus.",
        ) from error
    return arrow_rows.with_readable_names(file, found)


def read(
    file: CorpusFile, source: int, columns: Columns, carried_types: dict[str, pa.DataType]
) -> Iterator[DocumentBatch]:
    """The rows of a file, in order. Raises CorpusError where the file turns out damaged."""
    return arrow_rows.documents(file, source, _batches(file, columns), columns, carried_types)


def _batches(file: CorpusFile, columns: Columns) -> Iterator[pa.RecordBatch]:
    """The columns asked for, batch by batch; mapped, so that a batch of any size costs no memory of its own.

    A file that another process cuts short while it is read ends this one; it is resumable.
    """
    known = schema(file).names
    names = [name for name in columns.names if name in known]
    with _mapped(file) as source:
        for batch in _all_columns(source, [known.index(name) for name in names]):
            chosen = batch.select(names)
            _check(chosen)
            yield chosen


def _all_columns(source: pa.NativeFile, wanted: list[int]) -> Iterator[pa.RecordBatch]:
    """Batches with at least the columns wanted. Of a file with a footer, asking for some would copy them all."""
    if _has_footer(source):
        reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(use_threads=False))
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
    else:
        options = pa.ipc.IpcReadOptions(included_fields=sorted(wanted), use_threads=False)
        yield from pa.ipc.open_stream(source, options=options)


def _check(batch: pa.RecordBatch) -> None:
    """Raise ArrowInvalid where offsets lead out of the file; text that is not UTF-8 is no damage."""
    for column in batch.columns:
        values = column.dictionary if pa.types.is_dictionary(column.type) else column
        if pa.types.is_dictionary(column.type):
            column.indices.validate(full=True)
            _check_indices(column)
        arrow_rows.unchecked_bytes(values).validate(full=True)


def _check_indices(column: pa.DictionaryArray) -> None:
    bounds = pa.compute.min_max(column.indices).as_py()
    if bounds["max"] is not None and not 0 <= bounds["min"] <= bounds["max"] < len(column.dictionary):
        raise pa.ArrowInvalid("an index is outside its dictionary")


def _has_footer(source: pa.NativeFile) -> bool:
    head = source.read(len(MAGIC))
    source.seek(0)
    return bool(head == MAGIC)


def _mapped(file: CorpusFile) -> pa.NativeFile:
    return pa.memory_map(str(file.path))
