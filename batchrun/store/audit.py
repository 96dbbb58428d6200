"""An output held against its plan and the memo table: the books of a job, balanced once more from disk."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from batchrun.closing import Closing
from batchrun.database import Database, literal, statements
from batchrun.run_record import RowCounts
from batchrun.store.checkpoints import find_winners
from batchrun.store.rows import ROWS_AT_ONCE, rows_of
from batchrun.store.standing import count_rows


class Audit(Closing):
    """Over the segments of one job and seed, read once; close it, or use it in a `with` block.

    Only reads, and in bounded memory. Raises DatabaseError where a file can not be read.
    """

    def __init__(self, segments: Sequence[Path], scratch: Path) -> None:
        self._segments = [str(path) for path in segments]
        self._named = statements(__package__)
        self._database = Database(scratch)
        try:
            find_winners(self._database, segments)
        except BaseException:
            self.close()
            raise

    def problem(self, output: Path, plan: Path, sources: list[str]) -> str | None:
        """What is wrong with an output, the gravest first, or None.

        Every row of the plan is there once, in its order, with the status that plan and memo table give it,
        and every summary is the memo table's. A row that failed then and is computed since is no problem.
        """
        self._load(output, plan, sources)
        for name, tell in (
            ("wrong_number", _tell_number),
            ("wrong_place", _tell_place),
            ("wrong_row", _tell_row),
        ):
            found = self._execute(name).fetchone()
            if found is not None:
                return tell(sources, *found)
        return None

    def count_rows(self, plan: Iterable[pa.Table], num_shares: int) -> list[RowCounts]:
        """How the rows of a plan, given as for `count_rows`, stand by the memo table, of each share."""
        return count_rows(self._database, plan, num_shares)

    def count_by_status(self) -> dict[str, int]:
        """Rows of the output that was looked at last."""
        return dict(self._execute("published_by_status").fetchall())

    def _load(self, output: Path, plan: Path, sources: list[str]) -> None:
        numbers = pa.array(range(len(sources)), pa.int32())
        given = pa.table({"number": numbers, "path": pa.array(sources, pa.string())})
        self._database.connection.register("given_sources", given)
        self._execute("create_sources")
        self._execute("create_narrow_output")
        for rows in _narrow_rows(output):
            self._insert("narrow_output", rows)
        self._execute("published")
        self._execute("due", plan=literal(plan))
        self._execute("memo")
        for path in self._segments:
            found = rows_of(self._database, Path(path), self._named["due_places"])
            tables = [  # narrow, and all of a file before the first is written: one connection does one thing
                pa.table(
                    [rows["due_place"], rows["status"], text_hashes(rows["summary"])], names=["p", "s", "h"]
                )
                for rows in found
            ]
            for table in tables:
                self._insert("memo", table)

    def _insert(self, name: str, rows: pa.Table) -> None:
        self._database.connection.register("incoming", rows)
        self._database.connection.execute(f"INSERT INTO {name} SELECT * FROM incoming")
        self._database.connection.unregister("incoming")

    def _execute(self, name: str, **parameters: Any) -> Any:
        return self._database.connection.execute(self._named[name], parameters or None)

    def close(self) -> None:
        self._database.close()


def _narrow_rows(output: Path) -> Iterator[pa.Table]:
    """An output some rows at a time: wide columns do not pass through the database (see `store.rows`)."""
    columns = ["source", "row", "status", "error_type", "input_hash", "summary"]
    start = 0
    with pq.ParquetFile(output, pre_buffer=False, buffer_size=1 << 20) as file:
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=columns):
            rows = pa.Table.from_batches([batch])
            places = pa.array(np.arange(start, start + len(batch)))
            hashed = rows.set_column(rows.num_columns - 1, "summary", text_hashes(rows["summary"]))
            yield hashed.add_column(0, "place", places)
            start += len(batch)


def text_hashes(texts: pa.ChunkedArray) -> pa.Array:
    """xxh3_64 of each text; null for none."""
    return pa.array(
        [None if text is None else xxhash.xxh3_64_intdigest(text.encode()) for text in texts.to_pylist()],
        pa.uint64(),
    )


def _tell_number(sources: list[str], source: int | None, row: int, planned: int, found: int) -> str:
    where = _row(sources, source, row)
    if not planned:
        return f"{where} is in no plan"
    return f"{where} is missing" if not found else f"{where} stands there {found} times, planned {planned}"


def _tell_place(sources: list[str], source: int, row: int, due_source: int, due_row: int) -> str:
    return f"{_row(sources, source, row)} stands where {_row(sources, due_source, due_row)} belongs"


def _tell_row(sources: list[str], source: int, row: int, problem: str) -> str:
    return f"{_row(sources, source, row)} {problem}"


def _row(sources: list[str], source: int | None, row: int) -> str:
    return f"row {row} of {'an unknown source' if source is None else sources[source]}"
