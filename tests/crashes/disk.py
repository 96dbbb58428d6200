"""What batchrun does to the files below a folder, operation by operation: the seam of crash points and power losses."""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq

SYNC, SYNC_FOLDER = "fsync", "fsync folder"
CREATE, WRITE, FINISH = "create", "write", "write the end of"
RENAME, LINK, DELETE, MAKE_FOLDER, REMOVE_FOLDER = "rename", "link", "delete", "make folder", "remove folder"

PLACES = {
    "batchrun.planning.spool": "spooling",
    "batchrun.planning.planner": "planning",
    "batchrun.planning.plan": "planning",
    "batchrun.planning.departures": "planning",
    "batchrun.preparation": "planning",
    "batchrun.store.checkpoints.compact": "compacting",
    "batchrun.store.checkpoints.commit": "committing",
    "batchrun.store.publish": "publishing",
    "batchrun.telemetry.run_records": "recording",
    "batchrun.telemetry.requests": "telemetry",
    "batchrun.store.job_file": "freezing the job",
    "batchrun.model": "naming the model",
    "batchrun.scratch": "scratch",
}
"""The nearest caller among these, by module or by function, says what was being done; `gc` whatever lies below."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One change of the file system, about to be made or made; `target` is the new name of what is renamed."""

    kind: str
    path: Path
    target: Path | None = None
    place: str

    def named(self, home: Path) -> str:
        return f"{self.place}: {self.kind} {_file_kind(self.target or self.path, home)}"


class Observer:
    """Is told of each operation before and after; may never return."""

    def before(self, operation: Operation) -> None: ...

    def after(self, operation: Operation) -> None: ...


@contextmanager
def observed(home: Path, observer: Observer) -> Iterator[None]:
    """Tell `observer` of every operation below `home`, one at a time, whatever thread makes it."""
    guard = RLock()

    def wrapped(
        original: Callable[..., Any], kind: Callable[..., tuple[str, Path, Path | None] | None]
    ) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            told = kind(*arguments, **options)
            if told is None or not told[1].is_relative_to(home):
                return original(*arguments, **options)
            with guard:
                operation = Operation(kind=told[0], path=told[1], target=told[2], place=_place())
                observer.before(operation)
                result = original(*arguments, **options)
                observer.after(operation)
                return result

        return call

    writer = pq.ParquetWriter
    with (
        patch.object(os, "fsync", wrapped(os.fsync, _synced)),
        patch.object(os, "replace", wrapped(os.replace, _renamed)),
        patch.object(os, "rename", wrapped(os.rename, _renamed)),
        patch.object(os, "link", wrapped(os.link, _linked)),
        patch.object(os, "unlink", wrapped(os.unlink, _at(DELETE))),
        patch.object(os, "mkdir", wrapped(os.mkdir, _at(MAKE_FOLDER))),
        patch.object(os, "rmdir", wrapped(os.rmdir, _at(REMOVE_FOLDER))),
        patch.object(Path, "write_bytes", wrapped(Path.write_bytes, _at(WRITE))),
        patch.object(writer, "__init__", wrapped(writer.__init__, _opened)),
        patch.object(writer, "write_table", wrapped(writer.write_table, _of_writer(WRITE))),
        patch.object(writer, "write_batch", wrapped(writer.write_batch, _of_writer(WRITE))),
        patch.object(writer, "close", wrapped(writer.close, _of_writer(FINISH))),
    ):
        yield


def _synced(descriptor: int) -> tuple[str, Path, None]:
    is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    return SYNC_FOLDER if is_folder else SYNC, Path(f"/proc/self/fd/{descriptor}").readlink(), None


def _renamed(source: Any, target: Any, **_: Any) -> tuple[str, Path, Path]:
    return RENAME, Path(source).absolute(), Path(target).absolute()


def _linked(source: Any, target: Any, **_: Any) -> tuple[str, Path, Path]:
    return LINK, Path(source).absolute(), Path(target).absolute()


def _at(kind: str) -> Callable[..., tuple[str, Path, None]]:
    def told(path: Any, *_: Any, dir_fd: int | None = None, **__: Any) -> tuple[str, Path, None]:
        folder = Path.cwd() if dir_fd is None else Path(f"/proc/self/fd/{dir_fd}").readlink()
        return kind, folder / os.fspath(path), None

    return told


def _opened(writer: pq.ParquetWriter, where: Any, *_: Any, **__: Any) -> tuple[str, Path, None] | None:
    writer.observed_path = Path(where).absolute()
    return CREATE, writer.observed_path, None


def _of_writer(kind: str) -> Callable[..., tuple[str, Path, None] | None]:
    def told(writer: pq.ParquetWriter, *_: Any, **__: Any) -> tuple[str, Path, None] | None:
        return (kind, writer.observed_path, None) if writer.is_open else None

    return told


def _place() -> str:
    frame = sys._getframe()
    nearest = None
    while frame := frame.f_back:  # type: ignore[assignment]
        module = frame.f_globals.get("__name__", "")
        if module == "batchrun.collection":
            return "gc"
        nearest = nearest or PLACES.get(f"{module}.{frame.f_code.co_name}") or PLACES.get(module)
    return nearest or "beginning and end"


def _file_kind(path: Path, home: Path) -> str:
    parts = path.relative_to(home).parts
    if path.name.startswith(".tmp-"):
        return "temporary file"
    for folder, kind in (
        ("scratch", "scratch"),
        ("buckets", "spool"),
        ("segments", "segment"),
        ("runs", "run record"),
        ("requests", "request telemetry"),
    ):
        if folder in parts[:-1] and path.suffix:
            return kind
    return (
        path.name if path.suffix and "summaries" not in path.name else "output" if path.suffix else "folder"
    )
