"""The one durable write. Every file that must survive a crash goes through this module.

A file is written under a temporary name in its own folder, fsynced, renamed into place, and the
folder is fsynced. A reader sees the old file or the new one, never a part. After a power loss the
last rename that returned is there; POSIX gives no more than that.

Temporary names are `.tmp-<owner>-<random>`, so that leftovers of a dead owner can be told from the
files that a living one is writing.
"""

import os
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TEMPORARY_PREFIX = ".tmp-"


def temporary_path(folder: Path, owner: str) -> Path:
    """A name in `folder` that nobody uses, marked with its `owner` (a run id)."""
    return folder / f"{TEMPORARY_PREFIX}{owner}-{secrets.token_hex(4)}"


def publish(temporary: Path, target: Path) -> None:
    """Make `temporary` durable under the name `target`. Raises OSError; then `target` is untouched."""
    sync_file(temporary)
    temporary.replace(target)
    sync_folder(target.parent)


@contextmanager
def replacing(target: Path, owner: str) -> Iterator[Path]:
    """Give a temporary path to write to; publish it as `target` at the end, remove it on an error."""
    temporary = temporary_path(target.parent, owner)
    try:
        yield temporary
        publish(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(target: Path, data: bytes, owner: str) -> None:
    """Replace the contents of `target` by `data`, durably and at once."""
    with replacing(target, owner) as temporary:
        temporary.write_bytes(data)


def make_folder(folder: Path) -> None:
    """Make `folder` and what is missing above it, each durable in its parent."""
    missing = [folder, *folder.parents]
    missing = missing[: next(i for i, path in enumerate(missing) if path.exists())]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def remove(path: Path) -> None:
    """Remove `path` durably; one that is gone already is fine."""
    path.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        sync_folder(path.parent)


def set_aside(path: Path, folder: Path) -> Path:
    """Move a file that is not what it should be to `folder`, durably; returns where it is now."""
    make_folder(folder)
    target = folder / path.name
    path.replace(target)
    sync_folder(path.parent)
    sync_folder(folder)
    return target


def remove_leftovers(folder: Path, living_owners: Collection[str]) -> list[Path]:
    """Remove the temporary files in `folder` whose owner is not living; returns what was removed."""
    removed = []
    for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
        owner = path.name.removeprefix(TEMPORARY_PREFIX).rpartition("-")[0]
        if owner not in living_owners:
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed


def remove_of(folder: Path, owners: Collection[str]) -> None:
    """Remove the temporary files in `folder` that these owners left."""
    for owner in owners:
        for path in folder.glob(f"{TEMPORARY_PREFIX}{owner}-*"):
            path.unlink(missing_ok=True)


def sync_file(path: Path) -> None:
    _sync(path, os.O_RDONLY)


def sync_folder(path: Path) -> None:
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
