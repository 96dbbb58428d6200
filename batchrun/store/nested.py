"""The finished calls of long documents, found again by key, so that a document goes on in its middle."""

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from batchrun.database import Database, statements
from batchrun.records import FinishReason, MemoStatus, Summary
from batchrun.store import segments
from batchrun.store.checkpoints import Checkpoints
from batchrun.store.rows import rows_of


class NestedCalls:
    """What the memo table had when this was made; for any threads. Close it, it holds a database.

    Raises OSError where the disk fails.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._lock = Lock()
        self._database: Database | None = Database(checkpoints.paths.scratch)
        if not checkpoints.read(self._copy):
            self.close()

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Summary]:
        """Of these calls, the rows of those that are finished."""
        with self._lock:
            if self._database is None:
                return {}
            halves = np.frombuffer(b"".join(keys), ">u8").astype(np.uint64).reshape(-1, 2)
            asked = pa.table({"hash_hi": halves[:, 0], "hash_lo": halves[:, 1]})
            self._database.connection.register("asked", asked)
            found = self._database.read(statements(__package__)["nested_rows"]).read_all()
            self._database.connection.unregister("asked")
        return {row.key: row for row in map(_summary, found.to_pylist())}

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _copy(self, source: Database, files: list[str]) -> int:
        """Take the rows over from the segments; returns how many there are."""
        assert self._database is not None
        connection = self._database.connection
        connection.register("no_rows", segments.SCHEMA.empty_table())
        connection.execute("CREATE OR REPLACE TEMP TABLE nested AS FROM no_rows")
        num_rows = 0
        for file in files:
            for rows in rows_of(source, Path(file), statements(__package__)["nested_places"]):
                connection.register("found", rows)
                connection.execute("INSERT INTO nested FROM found")
                num_rows += rows.num_rows
        return num_rows


def _summary(row: dict[str, Any]) -> Summary:
    def key(high: str, low: str) -> bytes:
        return bytes(row[high].to_bytes(8, "big") + row[low].to_bytes(8, "big"))

    derived = {
        "hash_hi",
        "hash_lo",
        "rank",
        "progress",
        "content_hash",
        "document_hi",
        "document_lo",
        "token_ids",
    }
    columns = {name: row[name] for name in segments.SCHEMA.names if name not in derived}
    return Summary(
        **columns
        | {
            "key": key("hash_hi", "hash_lo"),
            "document_key": key("document_hi", "document_lo"),
            "status": MemoStatus(row["status"]),
            "finish_reason": FinishReason(row["finish_reason"]),
            "flags": tuple(row["flags"] or ()),
        }
    )
