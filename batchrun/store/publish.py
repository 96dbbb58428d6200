"""The output: plan and memo table joined, one row for every input row, in input order.

A range is a row group of the plan. The memo rows are first cut into ranges, in one pass over the
segments; then each range is put in order and zipped with the plan and the carried columns, one at a time. Ids and carried
columns are Arrow all the way. Memory is that of one range.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from batchrun import atomic_file
from batchrun.database import Database, statements
from batchrun.errors import AccountingError, DamageError
from batchrun.records import RowStatus
from batchrun.run_record import RowCounts
from batchrun.scratch import scratch_folder
from batchrun.store.checkpoints import Checkpoints
from batchrun.store.partitions import Partitions
from batchrun.store.rows import rows_of
from batchrun.store.standing import StatusCounts, count_statuses, row_counts
from batchrun.store.target import METADATA_KEY

_MEMO_COLUMNS = {
    "summary": pa.string(),
    "error_type": pa.string(),
    "error": pa.string(),
    "finish_reason": pa.string(),
    "output_tokens": pa.int64(),
    "kept_tokens": pa.int64(),
    "num_parts": pa.int32(),
    "engine": pa.string(),
}
_JOINED_COLUMNS = {"status": pa.string(), "flags": pa.list_(pa.string()), "input_tokens": pa.int64()}
"""Of the memo table, and of the plan: merges come to what was planned for a long document; of a truncated one the
plan knows how long it was.
"""


@dataclass(frozen=True, kw_only=True)
class Publication:
    """What to publish. `plan` has one row for every input row (the planner's schema); `carried` the ids
    and kept columns of the same rows in the same row groups, `doc_id` first. Its rows are counted by share.
    """

    plan: pq.ParquetFile
    carried: pq.ParquetFile
    carried_types: Mapping[str, pa.DataType]
    sources: list[str]
    job_id: str
    seed: int
    metadata: Mapping[str, Any]
    num_shares: int = 1


def publish(publication: Publication, checkpoints: Checkpoints, target: Path, owner: str) -> list[RowCounts]:
    """Write the output and put it in place of `target`; returns the rows by status, of each share.

    Every segment is hashed again before it is read; what is damaged is set aside and its rows are
    `pending`. Raises OSError where the disk fails, AccountingError where rows in are not rows out; `target`
    is then as it was.
    """
    with (
        _parts(publication, checkpoints, "located") as parts,
        atomic_file.replacing(target, owner) as temporary,
    ):
        counts = row_counts(_write(publication, parts, temporary), publication.num_shares)
        _balance(counts, publication.plan.metadata.num_rows, pq.read_metadata(temporary).num_rows)
        return counts


def failed_rows(publication: Publication, checkpoints: Checkpoints) -> Iterator[pa.Table]:
    """The failed rows of an output, a range at a time, without writing it or reading any summary."""
    with _parts(publication, checkpoints, "failed_located") as parts:
        for _, table in _tables(publication, parts):
            yield table.filter(pc.equal(table["status"], RowStatus.FAILED))


@contextmanager
def _parts(publication: Publication, checkpoints: Checkpoints, located: str) -> Iterator[Partitions]:
    """The memo rows that the statement `located` chooses for the plan, by the plan's row groups."""
    with scratch_folder(checkpoints.paths.scratch, "publish") as name:
        folder = Path(name) / "parts"
        yield checkpoints.read(
            lambda database, files: _partition(database, files, publication, folder, located), check_all=True
        )


def _balance(counts: Iterable[RowCounts], num_planned: int, num_written: int) -> None:
    """The books of an output before it is put in place: every planned row is in the file, with one status."""
    rows = sum(counts, RowCounts())
    if not rows.is_balanced or rows.total != num_planned or num_written != num_planned:
        by_status = {str(status): getattr(rows, status) for status in RowStatus}
        raise AccountingError(
            f"{num_planned:,} rows are planned, {num_written:,} would be published, by status {by_status}",
            "The output is as it was. Check the files with batchrun verify, and report this.",
        )


def _partition(
    database: Database, files: list[str], publication: Publication, folder: Path, located: str
) -> Partitions:
    """Cut the memo rows that the plan needs by its row groups."""
    named = statements(__package__)
    connection = database.connection
    if folder.exists():  # listed again
        rmtree(folder)
    folder.mkdir()
    connection.execute(named["create_planned"])
    for keys in _planned_keys(publication.plan):
        connection.register("keys", keys)
        connection.execute("INSERT INTO planned SELECT * FROM keys")
    connection.execute(named[located])
    parts = Partitions(folder)
    for file in files:
        for rows in rows_of(database, Path(file), named["located_rows"]):
            parts.add(rows.select([*_MEMO_COLUMNS, *_JOINED_COLUMNS, "part", "ordinal"]))
    return parts


def _read(file: pq.ParquetFile, part: int, columns: list[str] | None = None) -> pa.Table:
    try:
        return file.read_row_group(part, columns=columns)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DamageError(
            f"the plan or its carried columns are damaged: {str(error).splitlines()[0]}",
            "Submit the corpus again: the plan is made anew, and nothing that is finished is computed again.",
        ) from error


def _planned_keys(plan: pq.ParquetFile) -> Iterator[pa.Table]:
    start = 0
    for part in range(plan.num_row_groups):
        keys = _read(plan, part, ["hash_hi", "hash_lo"])
        ordinals = np.arange(start, start + keys.num_rows)
        start += keys.num_rows
        keys = keys.add_column(0, "ordinal", [ordinals]).add_column(
            0, "part", [np.full(len(ordinals), part, np.int32)]
        )
        yield keys.filter(pc.is_valid(keys["hash_hi"]))


def _write(publication: Publication, parts: Partitions, temporary: Path) -> StatusCounts:
    counts: StatusCounts = Counter()
    with pq.ParquetWriter(
        temporary,
        _schema(publication),
        compression="zstd",
        compression_level=1,
        write_page_checksum=True,
    ) as writer:
        for plan, table in _tables(publication, parts):
            writer.write_table(table)
            counts += count_statuses(plan, table["status"], publication.num_shares)
    return counts


def _tables(publication: Publication, parts: Partitions) -> Iterator[tuple[pa.RecordBatch, pa.Table]]:
    """The rows of the plan and of the output, a range at a time."""
    schema = _schema(publication)
    start = 0
    for part in range(publication.plan.num_row_groups):
        plan, carried = _row_group(publication.plan, part), _row_group(publication.carried, part)
        memo = parts.take(part, "ordinal")
        table = _join(publication, plan, carried, memo, start, schema)
        assert table.num_rows == plan.num_rows == carried.num_rows, "rows in must be rows out"
        yield plan, table
        start += table.num_rows


def _row_group(file: pq.ParquetFile, part: int) -> pa.RecordBatch:
    """A row group as one batch; the planner bounds its size. Raises DamageError."""
    batches = _read(file, part).combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=file.schema_arrow)


def _schema(publication: Publication) -> pa.Schema:
    kept = {name: kind for name, kind in publication.carried_types.items() if name != "doc_id"}
    fields = {
        "source": pa.string(),
        "row": pa.int64(),
        "doc_id": publication.carried_types["doc_id"],
        "summary": pa.string(),
        "status": pa.string(),
        "error_type": pa.string(),
        "error": pa.string(),
        "finish_reason": pa.string(),
        "flags": pa.list_(pa.string()),
        "input_tokens": pa.int64(),
        "output_tokens": pa.int64(),
        "kept_tokens": pa.int64(),
        "num_parts": pa.int32(),
        "input_hash": pa.string(),
        "job_id": pa.string(),
        "seed": pa.int64(),
        "engine": pa.string(),
    }
    return pa.schema(
        list((fields | kept).items()), metadata={METADATA_KEY: msgspec.json.encode(publication.metadata)}
    )


def _join(
    publication: Publication,
    plan: pa.RecordBatch,
    carried: pa.RecordBatch,
    memo: pa.Table | None,
    start: int,
    schema: pa.Schema,
) -> pa.Table:
    """One range of the output. `memo` is ordered by `ordinal`, each at most once."""
    places = _places(memo, start, plan.num_rows)
    found = {
        name: pa.nulls(plan.num_rows, kind) if memo is None else memo[name].take(places).cast(kind)
        for name, kind in (_MEMO_COLUMNS | _JOINED_COLUMNS).items()
    }
    from_plan = pc.is_valid(plan["status"])
    has_verdict = pc.is_in(found["status"], pa.array([RowStatus.OK, RowStatus.FAILED], pa.string()))
    computed = pc.if_else(has_verdict, found["status"], RowStatus.PENDING)
    columns: dict[str, Any] = {name: pc.if_else(has_verdict, found[name], None) for name in _MEMO_COLUMNS}
    columns |= {
        "source": pa.array(publication.sources, pa.string()).take(plan["source"]),
        "row": plan["row"],
        "status": pc.if_else(from_plan, plan["status"], computed),
        "error_type": pc.if_else(from_plan, plan["error_type"], columns["error_type"]),
        "error": pc.if_else(from_plan, plan["error"], columns["error"]),
        "flags": _flags(plan["flags"], found["flags"]),
        "input_tokens": pc.max_element_wise(plan["input_tokens"], found["input_tokens"]),
        "input_hash": _hex(plan),
        "job_id": pa.repeat(publication.job_id, plan.num_rows),
        "seed": pa.repeat(publication.seed, plan.num_rows),
    }
    for name, kind in publication.carried_types.items():
        columns[name] = restore_type(carried[name], kind)
    return pa.table([columns[field.name] for field in schema], schema=schema)


def restore_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A carried column in the type it had; columns of JSON values were carried as text."""
    return column if column.type == kind else column.cast(kind)


def _places(memo: pa.Table | None, start: int, num_rows: int) -> pa.Array:
    """For each row of the range, its place in `memo`, or null."""
    places = np.full(num_rows, -1, np.int64)
    if memo is not None:
        ordinals = memo["ordinal"].to_numpy() - start
        assert len(np.unique(ordinals)) == len(ordinals), "a row of the plan has one memo row"
        places[ordinals] = np.arange(len(ordinals))
    return pa.array(places, mask=places < 0)


def _flags(of_row: pa.Array, of_memo: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The flags of a row and of its summary together; few rows have any of their own."""
    merged = of_memo.combine_chunks() if isinstance(of_memo, pa.ChunkedArray) else of_memo
    if of_row.null_count == len(of_row):
        return pc.if_else(pc.is_valid(merged), merged, pa.scalar([], pa.list_(pa.string())))
    both = zip(of_row.to_pylist(), merged.to_pylist(), strict=True)
    return pa.array([sorted({*(row or ()), *(memo or ())}) for row, memo in both], pa.list_(pa.string()))


def _hex(plan: pa.RecordBatch) -> pa.Array:
    """The 16 bytes of each key as 32 hex digits, without a Python object a row."""
    keys = np.empty((plan.num_rows, 2), ">u8")
    keys[:, 0] = pc.fill_null(plan["hash_hi"], 0).to_numpy(zero_copy_only=False)
    keys[:, 1] = pc.fill_null(plan["hash_lo"], 0).to_numpy(zero_copy_only=False)
    offsets = np.arange(0, 32 * (plan.num_rows + 1), 32, dtype=np.int32)
    digits = pa.StringArray.from_buffers(
        plan.num_rows, pa.py_buffer(offsets), pa.py_buffer(keys.tobytes().hex().encode())
    )
    return pc.if_else(pc.is_valid(plan["hash_hi"]), digits, pa.scalar(None, pa.string()))
