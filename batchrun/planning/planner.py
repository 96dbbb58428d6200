"""The one streaming pass: texts to tokens, keys and buckets; what is not done goes to the spool.

A chunk of rows is held at a time. Tokens never become Python objects here: they go from the tokenizer's
buffer to the spool in Arrow.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt
import xxhash

from batchrun import atomic_file
from batchrun.database import Database, statements
from batchrun.documents import DocumentBatch, plain_values
from batchrun.planning.buckets import make_buckets
from batchrun.planning.measure import Measure, Measured, PlanSettings, halves
from batchrun.planning.plan import PLAN_SCHEMA
from batchrun.planning.spool import SpoolWriter
from batchrun.prompts.tokenizer import Tokenizer
from batchrun.records import ErrorType, Flag, RowStatus
from batchrun.shard import WHOLE, Shard, numbers_of
from batchrun.workspace import CorpusPaths

CHUNK_ROWS = 1 << 16
CHUNK_BYTES = 64 << 20
"""Of token ids and carried columns: a chunk ends at either limit; it is a row group of the plan."""

LIST = pa.list_(pa.string())
BATCHES_AHEAD = 2
"""Batches tokenized before they are written."""


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What the pass saw; `decided` counts rows without a run by error type, of the `num_own` of the shard."""

    num_rows: int
    num_own: int
    decided: dict[str, int]
    num_duplicate_ids: int


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """A batch, ready to be written."""

    plan: pa.RecordBatch
    carried: pa.RecordBatch
    measured: Measured
    num_own: int
    decided: Counter[str]

    @property
    def num_bytes(self) -> int:
        measured = self.measured
        long = sum(len(document.text) + document.token_ids.nbytes for document in measured.long)
        return int(measured.spool.nbytes + self.carried.nbytes) + long

    @property
    def keys(self) -> pa.Table:
        """Of what may be run: of the spool's rows, then of the long documents."""
        spooled = pa.Table.from_batches([self.measured.spool]).select(["hash_hi", "hash_lo"])
        keys = halves([document.key for document in self.measured.long])
        return pa.concat_tables([spooled, pa.table([keys[:, 0], keys[:, 1]], schema=spooled.schema)])


@dataclass(kw_only=True)
class _Chunk:
    """Batches that are written together."""

    batches: list[_Prepared] = field(default_factory=list)

    @property
    def num_rows(self) -> int:
        return sum(batch.plan.num_rows for batch in self.batches)

    @property
    def is_full(self) -> bool:
        num_bytes = sum(batch.num_bytes for batch in self.batches)
        return self.num_rows >= CHUNK_ROWS or num_bytes >= CHUNK_BYTES


class Planner:
    """Plans one corpus, or a shard of it, into `paths`. The caller holds the corpus' lock.

    A shard costs the whole pass, since a text's shard is known by its hash alone; only its spool is smaller.
    """

    def __init__(
        self,
        *,
        paths: CorpusPaths,
        scratch: Path,
        owner: str,
        tokenizer: Tokenizer,
        settings: PlanSettings,
        shard: Shard = WHOLE,
    ) -> None:
        self._paths = paths
        self._scratch = scratch
        self._owner = owner
        self._measure = Measure(tokenizer, settings)
        self._settings = settings
        self._shard = shard
        self._counts: Counter[str] = Counter()

    def plan(
        self,
        rows: Iterable[DocumentBatch],
        done_keys: Callable[[Callable[[pa.RecordBatchReader], None]], None],
        progress: Callable[[int], None],
    ) -> Counted:
        """Read all rows and write plan, carried columns and spool; `plan.json` then makes them valid.

        `done_keys` feeds the keys that need no place in the spool; `progress` is told the rows read so
        far, and may raise to stop. Raises OSError where the disk fails: then there is no valid plan,
        and nothing else has changed.
        """
        atomic_file.make_folder(self._paths.checkpoint)
        atomic_file.remove(self._paths.plan_record)
        atomic_file.remove_leftovers(self._paths.checkpoint, ())
        with Database(self._scratch) as database:
            _create_known(database, done_keys)
            with (
                atomic_file.replacing(self._paths.carried, self._owner) as carried,
                atomic_file.replacing(self._paths.plan, self._owner) as plan,
            ):
                self._pass(rows, database, plan, carried, progress)
            (num_duplicate_ids,) = database.one(statements(__package__)["num_duplicate_ids"])
        return Counted(
            num_rows=self._counts.pop("rows", 0),
            num_own=self._counts.pop("own", 0),
            decided=dict(self._counts),
            num_duplicate_ids=num_duplicate_ids,
        )

    def _pass(
        self,
        rows: Iterable[DocumentBatch],
        database: Database,
        plan: Path,
        carried: Path,
        progress: Callable[[int], None],
    ) -> None:
        buckets = make_buckets(self._settings.edges)
        with (
            SpoolWriter(self._paths.spool, buckets) as spool,
            pq.ParquetWriter(plan, PLAN_SCHEMA, compression="zstd", write_page_checksum=True) as plan_writer,
            _CarriedWriter(carried) as carried_writer,
        ):
            chunk = _Chunk()
            for batch in self._prepared(rows):
                chunk.batches.append(batch)
                self._counts["rows"] += batch.plan.num_rows
                self._counts["own"] += batch.num_own
                self._counts.update(batch.decided)
                if chunk.is_full:
                    self._flush(chunk, database, spool, plan_writer, carried_writer)
                    chunk = _Chunk()
                progress(self._counts["rows"])
            self._flush(chunk, database, spool, plan_writer, carried_writer)

    def _prepared(self, rows: Iterable[DocumentBatch]) -> Iterator["_Prepared"]:
        """Batches tokenized and hashed, in order, on a thread of their own: the buffers' work needs no GIL."""
        ahead: deque[Future[_Prepared]] = deque()
        with ThreadPoolExecutor(1, thread_name_prefix="tokenizer") as executor:
            for batch in rows:
                ahead.append(executor.submit(self._prepare, batch))
                if len(ahead) > BATCHES_AHEAD:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()

    def _prepare(self, rows: DocumentBatch) -> "_Prepared":
        """Tokenize, hash and measure a batch."""
        measured = self._measure.measure(rows)
        table = _PlanColumns(rows)
        table.set_documents(measured)
        for place, verdict in {**measured.verdicts, **rows.verdicts}.items():
            table.decide(place, verdict.status, verdict.error_type, verdict.error)
        plan = table.finish()
        is_own = self._shard.holds(numbers_of(plan))
        decided = (
            table.error_types[row]
            for row in np.flatnonzero(is_own & plan["error_type"].is_valid().to_numpy(False))
        )
        self._keep_own(measured)
        return _Prepared(
            plan=plan,
            carried=rows.carried,
            measured=measured,
            num_own=int(is_own.sum()),
            decided=Counter(str(kind) for kind in decided),
        )

    def _keep_own(self, measured: Measured) -> None:
        """Drop what another shard runs."""
        if self._shard == WHOLE:
            return
        is_own = self._shard.holds(measured.spool["hash_hi"].to_numpy())
        measured.spool, measured.buckets = measured.spool.filter(pa.array(is_own)), measured.buckets[is_own]
        are_own = self._shard.holds(halves([document.key for document in measured.long])[:, 0])
        measured.long = [one for one, own in zip(measured.long, are_own, strict=True) if own]

    def _flush(
        self,
        chunk: _Chunk,
        database: Database,
        spool: SpoolWriter,
        plan_writer: pq.ParquetWriter,
        carried_writer: "_CarriedWriter",
    ) -> None:
        if not chunk.num_rows:
            return
        plan = pa.Table.from_batches([batch.plan for batch in chunk.batches])
        plan_writer.write_table(plan.combine_chunks(), row_group_size=chunk.num_rows)
        carried = pa.Table.from_batches([batch.carried for batch in chunk.batches])
        carried_writer.write(carried)
        _add_ids(database, carried["doc_id"])
        self._spool(chunk, database, spool)

    def _spool(self, chunk: _Chunk, database: Database, spool: SpoolWriter) -> None:
        """Append what is neither done nor in the spool already, each to its bucket."""
        keys = [batch.keys for batch in chunk.batches]
        fresh = _fresh(database, pa.concat_tables(keys))
        start = 0
        for batch, own in zip(chunk.batches, keys, strict=True):
            self._append(batch.measured, fresh[start : start + own.num_rows], spool)
            start += own.num_rows

    def _append(self, measured: Measured, is_fresh: npt.NDArray[np.bool_], spool: SpoolWriter) -> None:
        num_whole = measured.spool.num_rows
        bucket_of = np.where(is_fresh[:num_whole], measured.buckets, -1)
        for bucket in np.unique(bucket_of[bucket_of >= 0]):
            spool.append(int(bucket), measured.spool.filter(pa.array(bucket_of == bucket)))
        for document, document_is_fresh in zip(measured.long, is_fresh[num_whole:], strict=True):
            if document_is_fresh:
                spool.append(len(self._settings.edges) + 1, self._measure.cut(document))


class _PlanColumns:
    """The columns of `plan.parquet` for one batch."""

    def __init__(self, rows: DocumentBatch) -> None:
        self.rows = rows
        size = len(rows.texts)
        self.keys = np.zeros((size, 2), np.uint64)
        self.tokens = np.zeros(size, np.int64)
        self.has_key = np.zeros(size, np.bool_)
        self.statuses: list[str | None] = [None] * size
        self.error_types: list[str | None] = [None] * size
        self.errors: list[str | None] = [None] * size
        self.flags = dict(rows.flags)

    def set_documents(self, measured: Measured) -> None:
        self.keys[measured.places] = measured.keys
        self.tokens[measured.places] = measured.input_tokens
        self.has_key[measured.places] = True
        for place in measured.truncated:
            self.flags[place] = (*self.flags.get(place, ()), Flag.TRUNCATED)

    def decide(self, place: int, status: RowStatus, error_type: ErrorType, error: str) -> None:
        self.statuses[place], self.error_types[place], self.errors[place] = status, error_type, error

    def finish(self) -> pa.RecordBatch:
        size = len(self.rows.texts)
        without_key = ~self.has_key
        flags = (
            [list(self.flags[i]) if i in self.flags else None for i in range(size)] if self.flags else None
        )
        return pa.RecordBatch.from_arrays(
            [
                pa.array(self.rows.source_numbers),
                pa.array(self.rows.row_numbers),
                pa.array(self.keys[:, 0], mask=without_key),
                pa.array(self.keys[:, 1], mask=without_key),
                pa.array(self.tokens, mask=without_key),
                pa.array(self.statuses, pa.string()),
                pa.array(self.error_types, pa.string()),
                pa.array(self.errors, pa.string()),
                pa.nulls(size, LIST) if flags is None else pa.array(flags, LIST),
            ],
            schema=PLAN_SCHEMA,
        )


class _CarriedWriter:
    """Opens its file at the first chunk, whose schema it takes; `close` makes an empty one otherwise."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._path, table.schema, compression="zstd", write_page_checksum=True
            )
        self._writer.write_table(table, row_group_size=table.num_rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, pa.schema([("doc_id", pa.string())]))
        self._writer.close()


def _create_known(
    database: Database, done_keys: Callable[[Callable[[pa.RecordBatchReader], None]], None]
) -> None:
    database.connection.execute(statements(__package__)["create_known"])
    database.connection.execute(statements(__package__)["create_ids"])

    def load(reader: pa.RecordBatchReader) -> None:
        database.connection.register("found", reader)
        database.connection.execute("INSERT INTO known SELECT hash_hi, hash_lo FROM found WHERE done")

    done_keys(load)


def _fresh(database: Database, rows: pa.Table) -> npt.NDArray[np.bool_]:
    """For each row whether its key was not known; these keys are known from now on."""
    index = pa.array(np.arange(rows.num_rows))
    chunk = rows.append_column("place", index)
    database.connection.register("chunk", chunk)
    found = database.connection.execute(statements(__package__)["fresh_rows"]).fetchnumpy()["place"]
    fresh = np.zeros(rows.num_rows, np.bool_)
    fresh[np.asarray(found, np.int64)] = True
    database.connection.register("chunk", chunk.filter(pa.array(fresh)))
    database.connection.execute("INSERT INTO known SELECT hash_hi, hash_lo FROM chunk")
    database.connection.unregister("chunk")
    return fresh


def _add_ids(database: Database, ids: pa.ChunkedArray) -> None:
    """Remember the hashes of ids; an id that is null is no duplicate of another."""
    texts = (str(value).encode(errors="surrogatepass") for value in _plain_values(ids) if value is not None)
    hashes = pa.array([xxhash.xxh3_64_intdigest(text) for text in texts], pa.uint64())
    database.connection.register("some_ids", pa.table({"id_hash": hashes}))
    database.connection.execute("INSERT INTO ids SELECT id_hash FROM some_ids")
    database.connection.unregister("some_ids")


def _plain_values(ids: pa.ChunkedArray) -> list[Any]:
    """Ids as Python values that tell them apart."""
    if pt.is_temporal(ids.type) and not pt.is_interval(ids.type):
        ids = ids.cast(pa.int32() if ids.type.bit_width == 32 else pa.int64())  # noqa: PLR2004
    return plain_values(ids)
