"""The one way DuckDB is opened: bounded memory, spilling to a folder that outlives nothing."""

import os
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from batchrun.closing import Closing
from batchrun.scratch import scratch_folder

DatabaseError = duckdb.Error
OutOfMemory = duckdb.OutOfMemoryException

MEMORY_LIMIT = "96MB"
"""What is larger spills: under it 10,000,000 memo rows of 5,000,000 keys were settled in 35 s."""


class Database(Closing):
    """An in-memory DuckDB for the length of one task; close it, or use it in a `with` block."""

    def __init__(self, scratch: Path, *, memory_limit: str = MEMORY_LIMIT) -> None:
        self.folder = scratch_folder(scratch, "duckdb")
        self.connection = duckdb.connect(
            config={
                "memory_limit": memory_limit,
                "temp_directory": self.folder.name,
                "preserve_insertion_order": False,
                "threads": min(4, os.cpu_count() or 1),
            }
        )

    def read(
        self, sql: str, parameters: dict[str, Any] | None = None, rows: int = 1 << 17
    ) -> pa.RecordBatchReader:
        """The result of a query as a stream of Arrow batches; nothing else may be asked meanwhile."""
        return self.connection.sql(sql, params=parameters).to_arrow_reader(rows)

    def one(self, sql: str, parameters: dict[str, Any] | None = None) -> tuple[Any, ...]:
        """The only row of a query. Fetched whole: an unfinished result would block the connection."""
        [row] = self.connection.execute(sql, parameters).fetchall()
        return tuple(row)

    def close(self) -> None:
        self.connection.close()
        self.folder.cleanup()


def literal(path: Path | str) -> str:
    """A path as `read_parquet` takes it: it matches patterns, and `news[1].parquet` would be `news1.parquet`."""
    return re.sub(r"[*?\[]", r"[\g<0>]", str(path))


@cache
def statements(package: str) -> dict[str, str]:
    """The named statements of a package's `queries.sql`: each follows a line `-- name: what it is for`."""
    text = resources.files(package).joinpath("queries.sql").read_text(encoding="utf-8")
    pieces = re.split(r"^-- (\w+): .*$", text, flags=re.MULTILINE)
    return dict(zip(pieces[1::2], (sql.strip() for sql in pieces[2::2]), strict=True))
