"""Rows of the memo table found again by key, so that a document goes on in its middle, and an output, too."""

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from batchrun.closing import Closing
from batchrun.database import Database, statements
from batchrun.records import FinishReason, MemoStatus, Summary
from batchrun.scratch import scratch_folder
from batchrun.store import segments
from batchrun.store.checkpoints import Checkpoints
from batchrun.store.rows import rows_of


class StoredRows(Closing):
    """What the memo table has of one kind when it is asked first; for any threads. To be used in a `with` block.

    Keys stand in a database, rows in a file beside it: a run that asks for none costs nothing, and memory does
    not grow with the rows. Raises OSError where the disk fails.
    """

    def __init__(self, checkpoints: Checkpoints, places: str) -> None:
        """`places`: the named query of where the rows of the kind lie."""
        self._checkpoints = checkpoints
        self._places = places
        self._lock = Lock()
        self._copy: _Copy | None = None

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Summary]:
        """Of these keys, the rows of the kind."""
        with self._lock:
            if self._copy is None:
                self._copy = _Copy(self._checkpoints, self._places)
            return {row.key: row for row in map(_summary, self._copy.rows(keys))}

    def close(self) -> None:
        with self._lock:
            if self._copy is not None:
                self._copy.close()
                self._copy = None


def nested_calls(checkpoints: Checkpoints) -> StoredRows:
    """The finished calls of long documents."""
    return StoredRows(checkpoints, "nested_places")


def partial_outputs(checkpoints: Checkpoints) -> StoredRows:
    """Outputs that earlier runs began: their rows have token ids."""
    return StoredRows(checkpoints, "partial_places")


class _Copy:
    """Rows one after the other in a file of batches that begin at the numbers `starts`."""

    def __init__(self, checkpoints: Checkpoints, places: str) -> None:
        self._places = places
        self._folder = scratch_folder(checkpoints.paths.scratch, "stored")
        self._path = Path(self._folder.name) / "rows.arrow"
        self._database = Database(checkpoints.paths.scratch)
        try:
            self.starts = checkpoints.read(self._fill)
        except BaseException:
            self.close()
            raise
        self._file = pa.ipc.open_file(pa.memory_map(str(self._path)))

    def _fill(self, source: Database, files: list[str]) -> list[int]:
        connection = self._database.connection
        connection.execute(statements(__package__)["create_stored"])
        starts = [0]
        with pa.OSFile(str(self._path), "wb") as sink, pa.ipc.new_file(sink, segments.SCHEMA) as writer:
            for file in files:
                for rows in rows_of(source, Path(file), statements(__package__)[self._places]):
                    [batch] = rows.combine_chunks().to_batches()
                    writer.write_batch(batch)
                    numbers = pa.array(np.arange(starts[-1], starts[-1] + len(batch)))
                    connection.register(
                        "found", rows.select(["hash_hi", "hash_lo"]).append_column("n", numbers)
                    )
                    connection.execute("INSERT INTO stored FROM found")
                    starts.append(starts[-1] + len(batch))
        return starts

    def rows(self, keys: Sequence[bytes]) -> list[dict[str, Any]]:
        if self.starts == [0]:
            return []
        halves = np.frombuffer(b"".join(keys), ">u8").astype(np.uint64).reshape(-1, 2)
        asked = pa.table({"hash_hi": halves[:, 0], "hash_lo": halves[:, 1]})
        self._database.connection.register("asked", asked)
        found = self._database.connection.execute(statements(__package__)["stored_numbers"]).fetchall()
        return [self._row(number) for (number,) in found]

    def _row(self, number: int) -> dict[str, Any]:
        batch = int(np.searchsorted(self.starts, number, side="right")) - 1
        [row] = self._file.get_batch(batch).slice(number - self.starts[batch], 1).to_pylist()
        return dict(row)

    def close(self) -> None:
        self._database.close()
        self._folder.cleanup()


def _summary(row: dict[str, Any]) -> Summary:
    def key(high: str, low: str) -> bytes:
        return bytes(row[high].to_bytes(8, "big") + row[low].to_bytes(8, "big"))

    is_nested = row["document_hi"] is not None
    token_ids = row["token_ids"]

    return Summary(
        **{name: row[name] for name in _AS_THEY_ARE},
        key=key("hash_hi", "hash_lo"),
        document_key=key("document_hi", "document_lo") if is_nested else None,
        status=MemoStatus(row["status"]),
        finish_reason=None if row["finish_reason"] is None else FinishReason(row["finish_reason"]),
        token_ids=None if token_ids is None else tuple(token_ids),
        flags=tuple(row["flags"] or ()),
    )


_AS_THEY_ARE = (
    "summary",
    "error_type",
    "error",
    "input_tokens",
    "output_tokens",
    "kept_tokens",
    "num_parts",
    "attempts",
    "engine",
)
