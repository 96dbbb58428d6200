"""The memo table of one job and seed: what is committed is there after any crash, and is found again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from batchrun import atomic_file
from batchrun.database import Database, DatabaseError, literal, statements
from batchrun.records import PERMANENT_ERRORS, Summary
from batchrun.scratch import remove_dead
from batchrun.store import segments
from batchrun.store.lock import UNKNOWN, holder_of
from batchrun.store.rows import rows_of
from batchrun.workspace import JobPaths

T = TypeVar("T")

COMPACT_FROM = 16
"""Segments from which a compaction pays: opening 5,000 small ones costs 0.8 s, and each is one file more."""
COMPACT_BELOW_BYTES = 64 << 20
"""A segment of this size is left alone: compaction rewrites small files, not the table."""

RECENT_SEGMENTS = 4


@dataclass(frozen=True, kw_only=True)
class Damage:
    """A segment that does not hold its bytes, and where it was set aside; None: it was left where it is."""

    segment: Path
    set_aside: Path | None

    def __str__(self) -> str:
        if self.set_aside is None:
            return (
                f"segment {self.segment} is damaged; the next run sets it aside and computes its rows again"
            )
        return (
            f"segment {self.segment} is damaged; set aside as {self.set_aside}, its rows are computed again"
        )


class Checkpoints:
    """The memo table, as one run sees it. Any number of runs may have it open.

    `damages` lists what was found damaged so far. Methods raise OSError where the disk fails. One that only
    `looks` changes no file: what is damaged is passed over and left where it is.
    """

    def __init__(self, paths: JobPaths, run_id: str, *, looks: bool = False) -> None:
        self.paths = paths
        self.run_id = run_id
        self.damages: list[Damage] = []
        self._looks = looks
        self._checked: set[str] = set()
        self._num_commits = 0
        if not looks:
            atomic_file.make_folder(paths.segments)

    def clean(self) -> None:
        """Remove the half-written files and the scratch folders of dead runs."""
        remove_dead(self.paths.scratch)
        locks = self.paths.corpora.glob("*/lock")
        living = {holder.run_id for path in locks if (holder := holder_of(path))}
        if UNKNOWN not in living:  # else a file may be that of a run which has not said yet who it is
            atomic_file.remove_leftovers(self.paths.segments, living | {self.run_id})

    def commit(self, rows: Sequence[Summary]) -> None:
        """Make rows durable: when this returns they survive a kill and a power loss."""
        if rows:
            stem = f"{self.run_id}-{self._num_commits:06d}"
            segments.write(self.paths.segments, stem, self.run_id, rows)
            self._num_commits += 1

    def intact_segments(self, *, check_all: bool = False) -> list[Path]:
        """The segments to read, each hashed before its first use here; damaged ones are set aside."""
        intact = []
        for path in segments.listed(self.paths.segments):
            try:
                if (path.name in self._checked and not check_all) or segments.is_intact(path):
                    self._checked.add(path.name)
                    intact.append(path)
                else:
                    self._set_aside(path)
            except FileNotFoundError:  # compacted by another run meanwhile: its rows are in a newer one
                return self.intact_segments(check_all=check_all)
        return intact

    def _set_aside(self, path: Path) -> None:
        if self._looks:
            self._note(Damage(segment=path, set_aside=None))
            return
        self._note(Damage(segment=path, set_aside=atomic_file.set_aside(path, self.paths.damaged)))

    def _note(self, damage: Damage) -> None:
        if damage not in self.damages:  # where it was left it is found again
            self.damages.append(damage)

    def settled_keys(self, consume: Callable[[pa.RecordBatchReader], T], *, retry_all: bool = False) -> T:
        """Give `consume` the keys with a verdict: `hash_hi, hash_lo, done, attempts`.

        Done is what is not computed again: `ok`, and failures of a permanent kind unless `retry_all`.
        """
        final = [] if retry_all else [str(kind) for kind, permanent in PERMANENT_ERRORS.items() if permanent]

        def task(database: Database, _: list[str]) -> T:
            sql = statements(__package__)["settled_keys"]
            return consume(database.read(sql, {"final_errors": final}))

        return self.read(task)

    def failed_keys(self) -> pa.Table:
        """`hash_hi, hash_lo` of what failed, for good or not: few, and held whole."""

        def consume(reader: pa.RecordBatchReader) -> pa.Table:
            failed = [batch.filter(pc.invert(batch["done"])) for batch in reader]
            return pa.Table.from_batches(failed, reader.schema).select(["hash_hi", "hash_lo"])

        return self.settled_keys(consume, retry_all=True)

    def count_by_rank(self) -> dict[int, int]:
        """Keys by rank: 2 ok, 1 failed, 0 partial."""
        sql = statements(__package__)["count_winners"]
        return self.read(lambda database, _: dict(database.connection.execute(sql).fetchall()))

    def has_partials(self) -> bool:
        """Whether an earlier run may have left an output that is not whole."""

        def task(database: Database, files: list[Path]) -> bool:
            segments = {"segments": [literal(path) for path in files]}
            return bool(files and database.one(statements(__package__)["has_partials"], segments)[0])

        return self._over_segments(task)

    def recent_lengths(self) -> list[tuple[int, int]]:
        """Input and output tokens of some summaries of the last segments, those of long documents left out."""

        def task(database: Database, files: list[Path]) -> list[tuple[int, int]]:
            last = {"segments": [literal(path) for path in files[-RECENT_SEGMENTS:]]}
            sql = statements(__package__)["recent_lengths"]
            return database.connection.execute(sql, last).fetchall() if files else []

        return self._over_segments(task)

    def table(self) -> pa.Table:
        """The memo table, one row a key, in no order; for tests and small tables, since it is held whole."""

        def task(database: Database, files: list[str]) -> pa.Table:
            sql = statements(__package__)["winning_places"]
            rows = (table for file in files for table in rows_of(database, Path(file), sql))
            return pa.concat_tables([segments.SCHEMA.empty_table(), *rows])

        return self.read(task)

    def read(self, task: Callable[[Database, list[str]], T], *, check_all: bool = False) -> T:
        """Run `task` over a database with the table `winner` and the segments it was made from.

        Where another run's compaction removes one of them meanwhile, all is listed and run again.
        """

        def over_winners(database: Database, files: list[Path]) -> T:
            find_winners(database, files)
            return task(database, [str(path) for path in files])

        return self._over_segments(over_winners, check_all=check_all)

    def _over_segments(self, task: Callable[[Database, list[Path]], T], *, check_all: bool = False) -> T:
        while True:
            files = self.intact_segments(check_all=check_all)
            with Database(self.paths.scratch) as database:
                try:
                    return task(database, files)
                except (DatabaseError, OSError):
                    if all(path.exists() for path in files):
                        raise

    def compact(self) -> None:
        """Merge small segments into one, then remove them; other runs may read and write meanwhile.

        Where another run's compaction takes them away first, that one has done it.
        """
        small = [path for path in self.intact_segments() if _size(path) < COMPACT_BELOW_BYTES]
        if len(small) < COMPACT_FROM:
            return
        try:
            merged = self._merge(small)
        except (DatabaseError, OSError):
            if all(path.exists() for path in small):
                raise
            return
        self._checked.add(merged.name)
        for path in small:
            path.unlink(missing_ok=True)
        atomic_file.sync_folder(self.paths.segments)

    def _merge(self, small: Sequence[Path]) -> Path:
        """Write the winners among the rows of segments as one durable segment."""
        with Database(self.paths.scratch) as database:
            find_winners(database, small)
            return self.rewrite(database, "winning_places", small)

    def rewrite(self, database: Database, places: str, files: Sequence[Path]) -> Path:
        """Write the rows of segments at the places that a named statement gives as one durable segment."""
        temporary = atomic_file.temporary_path(self.paths.segments, self.run_id)
        try:
            with pq.ParquetWriter(
                temporary, segments.SCHEMA, compression="zstd", compression_level=1
            ) as writer:
                for path in files:
                    for rows in rows_of(database, path, statements(__package__)[places]):
                        writer.write_table(rows)
            stem = f"{self.run_id}-c{self._num_commits:06d}"
            self._num_commits += 1
            return segments.name_by_content(temporary, self.paths.segments, stem)
        finally:
            temporary.unlink(missing_ok=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def find_winners(database: Database, files: Sequence[Path]) -> None:
    """Fill the table `winner`: one row a key, by precedence."""
    named = statements(__package__)
    connection = database.connection
    if not files:
        connection.execute(named["no_winners"])
        return
    connection.execute(named["narrow_rows"], {"segments": [literal(path) for path in files]})
    (has_rivals,) = database.one(named["has_rivals"])
    connection.execute(named["winners" if has_rivals else "only_winners"])
    connection.execute("DROP TABLE narrow")
