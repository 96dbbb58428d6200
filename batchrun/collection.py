"""`gc`: what no recent run needs any more, found first and taken away only when it is asked for.

A corpus is in use while its lock is held, or when it was planned or run within the last days. What goes:
the plans of corpora not in use, their spools, spools of completed plans, damaged segments set aside as
long ago, request telemetry as old, and memo rows that lose to others or whose document stands in no plan that
is left. What stays: `job.json`, run records, and everything of a job that a run holds just now.

Each step leaves a workspace that `verify` accepts, so that a collection that was killed is called again.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

import pyarrow as pa

from batchrun import atomic_file
from batchrun.errors import DamageError, LockedError
from batchrun.planning import plan as plans
from batchrun.planning import spool
from batchrun.storage import storage_errors
from batchrun.store import sweep
from batchrun.store.checkpoints import Checkpoints
from batchrun.store.lock import RunLock, holder_of
from batchrun.usage import CorpusUse, find_uses, moment
from batchrun.workspace import CorpusPaths, JobPaths, Workspace

OWNER = "gc"


class Kind(StrEnum):
    """What an item is."""

    PLAN = "plan"
    SPOOL = "spool"
    DAMAGED = "damaged"
    REQUESTS = "requests"
    MEMO = "memo"


@dataclass(frozen=True, kw_only=True)
class Item:
    """Something to take away: a plan's folder, a spool, a file set aside, a corpus' old telemetry, or
    rows of a job's memo table.
    """

    kind: Kind
    path: Path
    num_bytes: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Left:
    """Something that could not be looked at, and who or what stands before it."""

    path: Path
    why: str
    is_locked: bool


@dataclass(frozen=True, kw_only=True)
class Collection:
    """What would be taken away, or was; and what was left alone."""

    items: list[Item] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    @property
    def num_bytes(self) -> int:
        return sum(item.num_bytes for item in self.items)

    @property
    def is_barred(self) -> bool:
        """Whether nothing could be taken away since locks are held; without them there may be something."""
        return not self.items and any(left.is_locked for left in self.left)

    def __add__(self, other: "Collection") -> "Collection":
        return Collection(items=self.items + other.items, left=self.left + other.left)


def survey(workspace: Workspace, job_ids: Sequence[str], older_than: timedelta) -> Collection:
    """What a collection would take away. Takes no lock and changes nothing on disk. Raises StorageError."""
    found = Collection()
    with storage_errors(workspace.home):
        for paths in _seeds(workspace, job_ids):
            found += _Collector(paths, older_than).survey(looks=True)
    return found


def collect(
    workspace: Workspace, job_ids: Sequence[str], older_than: timedelta, tell: Callable[[Item], None]
) -> Collection:
    """Take it away, each item told when it is gone. Raises StorageError; then the rest stays."""
    found = Collection()
    with storage_errors(workspace.home):
        for paths in _seeds(workspace, job_ids):
            found += _Collector(paths, older_than).collect(tell)
    return found


def _seeds(workspace: Workspace, job_ids: Sequence[str]) -> Iterator[JobPaths]:
    for job_id in job_ids:
        for seed in workspace.job(job_id, 0).seeds():
            yield workspace.job(job_id, seed)


class _Collector:
    """Of one job and seed."""

    def __init__(self, paths: JobPaths, older_than: timedelta) -> None:
        self.paths = paths
        self.cutoff = _now() - older_than
        self.days = older_than.days

    # -- looking -------------------------------------------------------------------------------------

    def survey(self, *, looks: bool = False) -> Collection:
        """What there is to take away; one that only `looks` changes nothing on disk."""
        uses = find_uses(self.paths)
        items = [item for use in uses if (item := self._of_corpus(use))] + self._damaged()
        items += [item for use in uses if (item := self._requests(use))]
        return Collection(items=items) + self._memo(uses, looks=looks)

    def _of_corpus(self, use: CorpusUse) -> Item | None:
        """A corpus that is not used loses plan and spool; a completed one what its spool has left over."""
        files, num_spooled = plans.plan_files(use.paths), _size(use.paths.spool)
        if use.is_older(self.cutoff) and (files or use.paths.spool.exists()):
            why = f"{use.name}, not used since {use.used_at:%Y-%m-%d}"
            return Item(
                kind=Kind.PLAN, path=use.paths.checkpoint, num_bytes=_size(*files) + num_spooled, why=why
            )
        if num_spooled and use.is_spent:
            why = f"{use.name} is complete, and no row of it failed"
            return Item(kind=Kind.SPOOL, path=use.paths.spool, num_bytes=num_spooled, why=why)
        return None

    def _damaged(self) -> list[Item]:
        """A file's change time is when it was renamed to here."""
        found = [(path, path.stat()) for path in sorted(self.paths.damaged.glob("*"))]
        return [
            Item(
                kind=Kind.DAMAGED,
                path=path,
                num_bytes=status.st_size,
                why=f"set aside on {moment(status.st_ctime):%Y-%m-%d}",
            )
            for path, status in found
            if moment(status.st_ctime) < self.cutoff
        ]

    def _requests(self, use: CorpusUse) -> Item | None:
        """Files are never changed: their time is when they were written, and as good as that of their run."""
        old = [] if use.is_held else self._old_requests(use.paths)
        if not old:
            return None
        why = f"{len(old):,} files of {use.name}, older than {self.days:,} days"
        return Item(kind=Kind.REQUESTS, path=use.paths.requests, num_bytes=_size(*old), why=why)

    def _old_requests(self, paths: CorpusPaths) -> list[Path]:
        folders = (paths.requests, paths.timelines)
        files = sorted(path for folder in folders for path in folder.glob("*.parquet"))
        return [path for path in files if moment(path.stat().st_mtime) < self.cutoff]

    def _memo(self, uses: list[CorpusUse], *, looks: bool) -> Collection:
        """Left alone while a run of this job goes on, that may want any row, or where a plan is unreadable."""
        held = next((use for use in uses if use.is_held), None)
        if held is not None:
            why = f"in use by {holder_of(held.paths.lock) or 'a run that has just ended'}"
            return Collection(left=[Left(path=self.paths.segments, why=why, is_locked=True)])
        checkpoints = Checkpoints(self.paths, OWNER, looks=looks)
        try:
            found = sweep.survey(checkpoints, lambda: self._wanted(uses))
        except DamageError as error:
            why = f"what it is needed for is not known: {error.reason}"
            return Collection(left=[Left(path=self.paths.segments, why=why, is_locked=False)])
        damages = [
            Left(path=damage.segment, why=str(damage), is_locked=False) for damage in checkpoints.damages
        ]
        return Collection(items=self._memo_items(found), left=damages)

    def _memo_items(self, found: sweep.Sweep) -> list[Item]:
        if not found.going:
            return []
        why = (
            f"{found.going:,} of {found.num_rows:,} rows, in {len(found.segments):,} segments: superseded, "
            f"or of no document planned in the last {self.days:,} days"
        )
        return [Item(kind=Kind.MEMO, path=self.paths.segments, num_bytes=found.num_bytes, why=why)]

    def _wanted(self, uses: list[CorpusUse]) -> Iterator[pa.Table]:
        """The keys of the plans that stay; of one that is being made anew, those of the plan before."""
        for use in uses:
            if not use.is_older(self.cutoff) and use.paths.plan.exists():
                plans.read_intact(use.paths)  # raises where another file stands in its place
                yield from plans.keys_of(use.paths.plan)

    # -- taking away ---------------------------------------------------------------------------------

    def collect(self, tell: Callable[[Item], None]) -> Collection:
        """Alone with the job: no run begins while the barrier is held, and what runs keeps what it needs."""
        try:
            barrier = RunLock(self.paths.collection_lock, OWNER)
        except LockedError:
            why = f"another collection goes on: {holder_of(self.paths.collection_lock)}"
            return Collection(left=[Left(path=self.paths.seed_folder, why=why, is_locked=True)])
        try:
            return self._collect(tell)
        finally:
            barrier.release()

    def _collect(self, tell: Callable[[Item], None]) -> Collection:
        found = self.survey()
        done: list[Item] = []
        left = list(found.left)
        for item in found.items:
            try:
                taken = self._take(item)
            except LockedError as error:
                left.append(Left(path=item.path, why=error.reason, is_locked=True))
            else:
                done.append(taken)
                tell(taken)
        return Collection(items=done, left=left)

    def _take(self, item: Item) -> Item:
        """Returns the item with what it freed. Raises LockedError where a run holds its corpus."""
        if item.kind is Kind.DAMAGED:
            atomic_file.remove(item.path)
        elif item.kind is Kind.MEMO:
            uses = find_uses(self.paths)
            swept = sweep.sweep(Checkpoints(self.paths, _owner()), lambda: self._wanted(uses))
            return replace(item, num_bytes=swept.num_bytes)
        elif item.kind is Kind.REQUESTS:
            self._take_of_corpus(self.paths.corpus(item.path.parent.name), item.kind)
        else:
            self._take_of_corpus(self.paths.corpus(item.path.name), item.kind)
        return item

    def _take_of_corpus(self, paths: CorpusPaths, kind: Kind) -> None:
        lock = RunLock(paths.lock, OWNER)
        try:
            if kind is Kind.REQUESTS:
                for path in self._old_requests(paths):
                    atomic_file.remove(path)
                return
            if kind is Kind.PLAN:
                plans.retire(paths, OWNER)
            spool.remove(paths.spool)
        finally:
            lock.release()


def _owner() -> str:
    """A name for new segments; one of each collection."""
    return f"{OWNER}-{_now():%Y%m%dT%H%M%S%f}"


def _now() -> datetime:
    return datetime.now(UTC)


def _size(*paths: Path) -> int:
    """Bytes of files, and of all files below folders."""
    total = 0
    for path in paths:
        for file in path.rglob("*") if path.is_dir() else [path]:
            with suppress(FileNotFoundError):  # a run goes on beside
                total += file.stat().st_size if file.is_file() else 0
    return total
