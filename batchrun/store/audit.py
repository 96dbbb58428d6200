"""An output held against its plan and the memo table: the books of a job, balanced once more from disk."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from batchrun.database import Database, statements
from batchrun.store.checkpoints import find_winners


class Audit:
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

    def count_by_status(self) -> dict[str, int]:
        """Rows of the output that was looked at last."""
        return dict(self._execute("published_by_status").fetchall())

    def _load(self, output: Path, plan: Path, sources: list[str]) -> None:
        numbers = pa.array(range(len(sources)), pa.int32())
        given = pa.table({"number": numbers, "path": pa.array(sources, pa.string())})
        self._database.connection.register("given_sources", given)
        self._execute("create_sources")
        self._execute("published", output=str(output))
        self._execute("due", plan=str(plan))
        if self._segments:
            self._execute("memo", segments=self._segments)
        else:
            self._execute("no_memo")

    def _execute(self, name: str, **parameters: Any) -> Any:
        return self._database.connection.execute(self._named[name], parameters or None)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
