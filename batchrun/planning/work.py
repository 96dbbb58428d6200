"""What is left to run of a plan: the rows wanted, less those with a verdict, found in the spool."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from batchrun.closing import Closing
from batchrun.database import Database, statements
from batchrun.memory import release_unused
from batchrun.planning import order, spool
from batchrun.planning.buckets import Padding, assign, make_buckets
from batchrun.planning.plan import PLAN_SCHEMA, PlanRecord, damaged, open_checked
from batchrun.planning.spool import SpoolPart
from batchrun.records import LONG, Document, Preference
from batchrun.scratch import scratch_folder
from batchrun.shard import WHOLE, Shard
from batchrun.workspace import CorpusPaths

DOCUMENTS_AT_ONCE, TOKENS_AT_ONCE = 512, 1 << 18
"""The most of a portion: a token in Python takes some 40 bytes. A longer document is one by itself."""
MERGED_PARTS = 32
"""Parts of the spool that are merged at a time, 256 M tokens: documents further apart do not come together, and a row
group of each is held.
"""

SettledKeys = Callable[[Callable[[pa.RecordBatchReader], None]], None]
"""Feeds the verdicts of the memo table (`hash_hi, hash_lo, done, attempts`) to a consumer."""

TokensRead = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]]
"""Of the tokens of whole prompts, those that the calls of their documents read."""


@dataclass(frozen=True, kw_only=True)
class WorkCounts:
    """`total = skipped + unusable + duplicate + reused + to_run`, of a shard its own, so that shards add up to the
    corpus; `to_run_tokens` are prompt tokens of all calls, for documents in parts an estimate.
    """

    total: int
    skipped: int
    unusable: int
    duplicate: int
    reused: int
    to_run: int
    to_run_tokens: int


@dataclass(frozen=True, kw_only=True)
class WorkOutline:
    """What `plan` shows beside the counts: by bucket label, documents and tokens; padding shares."""

    documents_by_bucket: dict[str, int]
    tokens_by_bucket: dict[str, int]
    padding_without_buckets: float
    padding_with_buckets: float


class Work(Closing):
    """Open while the run goes on; close it, or use it in a `with` block. For one thread at a time.

    Raises DamageError where plan or spool can not be read.
    """

    def __init__(
        self,
        paths: CorpusPaths,
        record: PlanRecord,
        scratch: Path,
        settled: SettledKeys,
        tokens_read: TokensRead,
    ) -> None:
        self._paths = paths
        self._tokens_read = tokens_read
        self._database = Database(scratch)
        self._selections = scratch_folder(scratch, "work")
        self._parts = spool.parts(paths.spool)
        try:
            self._fill(settled, record.shard or WHOLE)
            self.counts = self._count(record)
            self.num_missing = int(self._database.one(statements(__package__)["num_missing"])[0])
        except BaseException:
            self.close()
            raise

    def _fill(self, settled: SettledKeys, shard: Shard) -> None:
        named = statements(__package__)
        execute = self._database.connection.execute
        for name in ("create_settled", "create_planned", "create_spooled"):
            execute(named[name])
        settled(lambda reader: self._insert("settled", reader))
        for rows in _planned_rows(self._paths.plan, shard):
            self._insert("planned", rows)
        execute(named["distinct_planned"])
        execute(named["todo"])
        for part in self._parts:
            keys = part.keys()
            numbers = pa.array(np.full(keys.num_rows, part.number, np.int32))
            places = pa.array(np.arange(keys.num_rows))
            self._insert("spooled", keys.add_column(0, "place", places).add_column(0, "part", numbers))
        execute(named["selected"])

    def _insert(self, table: str, rows: pa.Table | pa.RecordBatchReader) -> None:
        self._database.connection.register("incoming", rows)
        self._database.connection.execute(f"INSERT INTO {table} SELECT * FROM incoming")
        self._database.connection.unregister("incoming")

    def _count(self, record: PlanRecord) -> WorkCounts:
        planned, distinct, to_run = self._database.one(statements(__package__)["counts"])
        return WorkCounts(
            total=record.num_to_account,
            skipped=record.num_skipped,
            unusable=record.num_unusable,
            duplicate=planned - distinct,
            reused=distinct - to_run,
            to_run=to_run,
            to_run_tokens=sum(int(lengths.sum()) for lengths in self._lengths("todo_lengths")),
        )

    def _lengths(self, named: str) -> Iterator[npt.NDArray[np.int64]]:
        """Tokens that the documents to run read, by a statement that gives those of their whole prompts."""
        for batch in self._database.read(statements(__package__)[named]):
            if batch.num_rows:
                yield self._tokens_read(batch["input_tokens"].to_numpy())

    def outline(self, edges: tuple[int, ...], room: int) -> WorkOutline:
        """Buckets and padding of what is to run, in one pass over its lengths; what is longer than `room` is long."""
        buckets = make_buckets(edges)
        padding = Padding(edges)
        documents = np.zeros(len(buckets), np.int64)
        tokens = np.zeros(len(buckets), np.int64)
        for lengths in self._lengths("ordered_lengths"):
            padding.add(lengths)
            bucket_of = np.where(lengths > room, len(buckets) - 1, assign(edges, lengths))
            documents += np.bincount(bucket_of, minlength=len(buckets))
            tokens += np.bincount(bucket_of, weights=lengths, minlength=len(buckets)).astype(np.int64)
        labels = [bucket.label for bucket in buckets]
        return WorkOutline(
            documents_by_bucket=dict(zip(labels, documents.tolist(), strict=True)),
            tokens_by_bucket=dict(zip(labels, tokens.tolist(), strict=True)),
            padding_without_buckets=padding.share_without_buckets,
            padding_with_buckets=padding.share_with_buckets,
        )

    def documents(
        self, *, by_bucket: bool = False, prefer: Preference | None = None
    ) -> Iterator[list[Document]]:
        """What is to run, in the order of work, some documents at a time. To be asked for once, at last.

        Long documents first; then all others that begin alike together, whatever their bucket, or, for an
        engine that pads, `by_bucket`; unless others are preferred.
        """
        selections = self._select()
        if prefer is Preference.ORDER:
            batches = _in_input_order(self._parts, selections)
        else:
            rounds = _rounds(self._parts, by_bucket=by_bucket, prefer=prefer)
            batches = chain.from_iterable(
                order.merged([_chosen_rows(part, selections[part.number]) for part in parts])
                for parts in rounds
            )
        for batch in batches:
            attempts = batch["attempts"].to_numpy()
            for places in _portions(batch):
                yield spool.document_rows(batch, places, attempts[places])

    def _select(self) -> list[Path]:
        """The choice from each part as a file; then the database goes, and its memory with it: a run lasts a
        night and holds nothing that grows with the rows.
        """
        paths = [Path(self._selections.name) / f"{part.number}.parquet" for part in self._parts]
        for part, path in zip(self._parts, paths, strict=True):
            chosen = self._database.read(statements(__package__)["part_selection"], {"part": part.number})
            with pq.ParquetWriter(path, chosen.schema) as writer:
                for batch in chosen:
                    writer.write_batch(batch)
        self._database.close()
        release_unused()
        return paths

    def close(self) -> None:
        self._database.close()
        self._selections.cleanup()


def _in_input_order(parts: Sequence[SpoolPart], selections: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    """A bucket's parts were filled one after the other: each is sorted by itself, and the buckets are merged."""

    def sorted_rows(part: SpoolPart) -> Iterator[pa.RecordBatch]:
        batches = list(_chosen_rows(part, selections[part.number]))
        if batches:
            yield from order.in_order(pa.Table.from_batches(batches), order.ordinals).to_batches()

    streams = [chain.from_iterable(map(sorted_rows, bucket)) for bucket in _by_bucket(parts).values()]
    return order.merged(streams, order.ordinals)


def _portions(batch: pa.RecordBatch) -> Iterator[npt.NDArray[np.int64]]:
    """The numbers of a batch's rows, some at a time."""
    _, starts = spool.token_rows(batch)
    first = 0
    while first < batch.num_rows:
        fitting = int(np.searchsorted(starts, starts[first] + TOKENS_AT_ONCE, side="right")) - 1
        last = min(max(fitting, first + 1), first + DOCUMENTS_AT_ONCE, batch.num_rows)
        yield np.arange(first, last)
        first = last


def _by_bucket(parts: Sequence[SpoolPart]) -> dict[str, list[SpoolPart]]:
    """The parts of each bucket, the buckets in the order of work."""
    buckets: dict[str, list[SpoolPart]] = {}
    for part in parts:
        buckets.setdefault(part.bucket, []).append(part)
    return buckets


def _rounds(
    parts: Sequence[SpoolPart], *, by_bucket: bool, prefer: Preference | None
) -> Iterator[Sequence[SpoolPart]]:
    """Parts that are merged: as many of every bucket as make MERGED_PARTS, or of one bucket alone; long ones singly."""
    buckets = _by_bucket(parts)
    if prefer is not None or by_bucket:
        named = reversed(buckets) if prefer is Preference.SHORTEST else buckets
        for name in named:
            yield from _some(buckets[name], 1 if name == LONG.name else MERGED_PARTS)
        return
    yield from _some(buckets.pop(LONG.name, []), 1)
    each = max(1, MERGED_PARTS // max(1, len(buckets)))
    for side_by_side in zip_longest(*(_some(bucket, each) for bucket in buckets.values())):
        yield list(chain.from_iterable(filter(None, side_by_side)))


def _some(parts: Sequence[SpoolPart], number: int) -> Iterator[Sequence[SpoolPart]]:
    return (parts[start : start + number] for start in range(0, len(parts), number))


def _chosen_rows(part: SpoolPart, selection: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a part that are to run, with the failed `attempts` and the `ordinal` of each."""
    chosen = pq.read_table(selection)
    places = chosen["place"].to_numpy()
    start = 0
    for batch in part.batches() if len(places) else ():
        low, high = np.searchsorted(places, [start, start + batch.num_rows])
        if high > low:
            rows = batch.take(pa.array(places[low:high] - start))
            for name in ("attempts", "ordinal"):
                rows = rows.append_column(name, chosen[name].slice(low, high - low).combine_chunks())
            yield rows
        start += batch.num_rows


def _planned_rows(path: Path, shard: Shard) -> Iterator[pa.Table]:
    """The rows of the plan that want a summary of the shard: `ordinal, hash_hi, hash_lo, input_tokens`."""
    file: pq.ParquetFile = open_checked(path, PLAN_SCHEMA)
    start = 0
    for group in range(file.num_row_groups):
        try:
            rows = file.read_row_group(group, columns=["hash_hi", "hash_lo", "input_tokens", "status"])
        except (OSError, pa.ArrowException) as error:
            raise damaged(path, error) from error
        ordinals = pa.array(np.arange(start, start + rows.num_rows))
        start += rows.num_rows
        wanted = pc.and_(pc.is_valid(rows["hash_hi"]), pc.is_null(rows["status"]))
        rows = rows.drop_columns(["status"]).add_column(0, "ordinal", ordinals).filter(wanted)
        yield rows if shard == WHOLE else rows.filter(pa.array(shard.holds(rows["hash_hi"].to_numpy())))
