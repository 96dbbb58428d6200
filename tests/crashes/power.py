"""Losses of power at every point of a recorded run: what was not synced is gone, and the store's promises hold.

The model is what POSIX leaves open. The bytes of a file are what they were at its last fsync, or none. The
entries of a folder are what they were at its last fsync, and any number of the first changes since.
"""

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from batchrun.records import Summary
from batchrun.store.checkpoints import Checkpoints
from tests.crashes import disk
from tests.crashes.children import KILLED, in_child
from tests.crashes.disk import Observer, Operation, observed
from tests.crashes.scenes import Stage, check_submit, submit

COMMITTED = "committed"
"""Not an operation of the disk: what was promised durable from here on."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An operation as it was recorded: paths below the home; the bytes of a file that was synced; the keys of a
    commit that returned.
    """

    kind: str
    path: str = "."
    target: str | None = None
    content: bytes | None = None
    keys: tuple[str, ...] = ()


class _Recorder(Observer):
    def __init__(self, home: Path) -> None:
        self._home = home
        self.events: list[Event] = []

    def after(self, operation: Operation) -> None:
        is_file = operation.kind == disk.SYNC
        self.events.append(
            Event(
                kind=operation.kind,
                path=str(operation.path.relative_to(self._home)),
                target=str(operation.target.relative_to(self._home)) if operation.target else None,
                content=operation.path.read_bytes() if is_file else None,
            )
        )


def record(stage: Stage) -> list[Event]:
    """A submit, operation by operation."""

    def task() -> None:
        recorder = _Recorder(stage.home)
        commit = Checkpoints.commit

        def noted(checkpoints: Checkpoints, rows: Sequence[Summary]) -> None:
            commit(checkpoints, rows)
            recorder.events.append(Event(kind=COMMITTED, keys=tuple(row.key.hex() for row in rows)))

        with patch.object(Checkpoints, "commit", noted), observed(stage.home, recorder):
            assert 0 == submit(stage)
        found.write_bytes(msgspec.msgpack.encode(recorder.events))

    found = stage.home.parent / "events"
    stage.reset()
    in_child(task, stage.log)
    return msgspec.msgpack.decode(found.read_bytes(), type=list[Event])


@dataclass(eq=False)
class File:
    """What a disk holds of a file: its bytes at the last fsync."""

    durable: bytes = b""


@dataclass(eq=False)
class Folder:
    """What a disk holds of a folder, and what was changed since, in order; None: an entry that went."""

    durable: "dict[str, File | Folder]" = field(default_factory=dict)
    pending: "list[tuple[str, File | Folder | None]]" = field(default_factory=list)

    def entries(self, persisted: int) -> "dict[str, File | Folder]":
        """After a power loss that the first `persisted` of the pending changes came before."""
        found: dict[str, File | Folder | None] = {**self.durable}
        found.update(self.pending[:persisted])
        return {name: node for name, node in found.items() if node is not None}

    def change(self, name: str, node: "File | Folder | None") -> None:
        self.pending.append((name, node))

    def sync(self) -> None:
        self.durable, self.pending = self.entries(len(self.pending)), []


class Disk:
    """A folder tree as a power loss would leave it."""

    def __init__(self, tree: Path) -> None:
        self._root = _read(tree)

    def apply(self, event: Event) -> None:
        path, target = Path(event.path), Path(event.target or ".")
        match event.kind:
            case disk.CREATE | disk.WRITE if self._node(path) is None:
                self._folder(path.parent).change(path.name, File())
            case disk.SYNC:
                if self._node(path) is None:  # made by other means than those that are observed
                    self._folder(path.parent).change(path.name, File())
                node = self._node(path)
                assert isinstance(node, File), f"{path} is no file"
                node.durable = event.content or b""
            case disk.SYNC_FOLDER:
                self._folder(path).sync()
            case disk.RENAME | disk.LINK:
                self._folder(target.parent).change(target.name, self._node(path))
                if event.kind == disk.RENAME:
                    self._folder(path.parent).change(path.name, None)
            case disk.MAKE_FOLDER:
                self._folder(path.parent).change(path.name, Folder())
            case disk.DELETE | disk.REMOVE_FOLDER:
                self._folder(path.parent).change(path.name, None)

    def _node(self, path: Path) -> File | Folder | None:
        node: File | Folder | None = self._root
        for name in path.parts:
            node = node.entries(len(node.pending)).get(name) if isinstance(node, Folder) else None
        return node

    def _folder(self, path: Path) -> Folder:
        node = self._node(path)
        assert isinstance(node, Folder), f"{path} is no folder that was seen"
        return node

    def restore(self, home: Path, persisted: Callable[[int], int]) -> None:
        """Make `home` what a power loss leaves; `persisted` chooses how many of so many changes."""
        shutil.rmtree(home, ignore_errors=True)
        _write(self._root, home, persisted)


def _read(tree: Path) -> Folder:
    entries = {
        path.name: _read(path) if path.is_dir() else File(path.read_bytes()) for path in tree.iterdir()
    }
    return Folder(durable=entries)


def _write(folder: Folder, path: Path, persisted: Callable[[int], int]) -> None:
    path.mkdir()
    for name, node in folder.entries(persisted(len(folder.pending))).items():
        if isinstance(node, Folder):
            _write(node, path / name, persisted)
        else:
            (path / name).write_bytes(node.durable)


def losses(rng: random.Random) -> Iterator[tuple[str, Callable[[int], int]]]:
    """What may be left of changes that were not synced."""
    yield "nothing unsynced", lambda _: 0
    yield "all names, no unsynced bytes", lambda number: number
    yield "some unsynced names", lambda number: rng.randint(0, number)


def cut_everywhere(stage: Stage, every: int) -> int:
    """Cut the power after each event, or one of `every`; returns the number of cuts.

    Raises AssertionError, naming the event, where a promise does not hold after it.
    """
    stage.reset()
    assert 0 == in_child(partial(submit, stage), stage.log)
    expected = pq.read_table(stage.output)
    events = record(stage)
    cuts, wrong = 0, []
    for number in range(0, len(events) + 1, every):
        for what, persisted in losses(random.Random(number)):  # noqa: S311 - which changes, not a secret
            cuts += 1
            try:
                _cut(stage, events[:number], persisted, expected)
            except AssertionError as error:
                last = [(event.kind, event.path, event.target) for event in events[number - 1 : number]]
                wrong.append(
                    f"{what} survived {number} of {len(events)} operations, the last {last}: {error}"
                )
    assert not wrong, "\n".join(wrong)
    return cuts


def _cut(stage: Stage, events: list[Event], persisted: Callable[[int], int], expected: pa.Table) -> None:
    left = Disk(stage.template)
    for event in events:
        left.apply(event)
    left.restore(stage.home, persisted)
    shutil.copystat(stage.template / stage.corpus.name, stage.corpus)
    promised = {key for event in events for key in event.keys}
    assert KILLED != in_child(lambda: check_submit(stage, expected, promised), stage.log)
