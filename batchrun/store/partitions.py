"""Rows cut by a number into files of their own, so that each cut can be put in order by itself."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

HELD_BYTES = 16 << 20
"""Of rows in memory before those of the fullest parts are written."""


class Partitions:
    """Tables with a column `part`, spread over `folder`. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[int, list[pa.Table]] = {}
        self._sizes: dict[int, int] = {}
        self._num_files = 0

    def add(self, rows: pa.Table) -> None:
        parts = rows["part"].to_numpy()
        for part in np.unique(parts).tolist():
            own = rows.filter(pa.array(parts == part))
            self._held.setdefault(part, []).append(own)
            self._sizes[part] = self._sizes.get(part, 0) + own.nbytes
        while sum(self._sizes.values()) > HELD_BYTES:
            self._write(max(self._sizes, key=self._sizes.__getitem__))

    def _write(self, part: int) -> None:
        rows = pa.concat_tables(self._held.pop(part))
        del self._sizes[part]
        path = self._folder / f"{part}-{self._num_files}.arrow"
        self._num_files += 1
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_file(sink, rows.schema, options=options) as writer,
        ):
            writer.write_table(rows)

    def take(self, part: int, order: str) -> pa.Table | None:
        """The rows of a part in the order of a column, or None where it has none; they are forgotten here."""
        self._sizes.pop(part, None)
        rows = [*self._read(part), *self._held.pop(part, [])]
        return pa.concat_tables(rows).sort_by(order) if rows else None

    def _read(self, part: int) -> Iterator[pa.Table]:
        for path in sorted(self._folder.glob(f"{part}-*.arrow")):
            with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as file:
                yield file.read_all()
            path.unlink()
