"""`job.json`: what a job is, frozen by its first run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from batchrun import atomic_file
from batchrun.errors import ConfigError
from batchrun.seal import decode, encode
from batchrun.spec import LATER, JobSpec
from batchrun.store.lock import turn
from batchrun.workspace import Workspace


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """What `auto` was on the machine of the first run."""

    kind: str
    dtype: str
    device: str


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The frozen spec, its fingerprint and what the fingerprint was made of."""

    job_id: str
    name: str
    fingerprint: str
    fields: dict[str, Any]
    spec: JobSpec
    model_folder: str
    created_at: str
    resolved: Resolved | None = None


def read(path: Path) -> JobRecord | None:
    """The record, or None where there is none. Raises ConfigError where it is damaged, or another job's."""
    try:
        record = decode(path.read_bytes(), JobRecord)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise _damaged(path, str(error)) from error
    if record.job_id != path.parent.name:
        raise _damaged(path, f"it is that of job {record.job_id}")
    return record


def _damaged(path: Path, problem: str) -> ConfigError:
    return ConfigError(
        f"{path} is damaged: {problem}", "Restore it from a backup, or move it away: submit makes it again."
    )


def update(path: Path, change: Callable[[JobRecord | None], JobRecord], owner: str) -> JobRecord:
    """Make the record what `change` makes of it, with no other run between: the shards of a new job begin on several
    machines at once, and the first one's choice of an engine must hold for all.
    """
    atomic_file.make_folder(path.parent)
    with turn(path.parent / "lock"):
        before = read(path)
        after = change(before)
        if after != before:
            atomic_file.write_bytes(path, encode(after), owner)
    return after


def last_of_name(workspace: Workspace, name: str) -> JobRecord | None:
    """The newest job of that name, of those whose file can be read: what it is asked for is told, not computed."""
    records = [_readable(path) for path in workspace.checkpoints.glob(f"{name}-*/job.json")]
    named = [record for record in records if record is not None and record.name == name]
    return max(named, key=lambda record: record.created_at, default=None)


def _readable(path: Path) -> JobRecord | None:
    try:
        return read(path)
    except ConfigError:
        return None


def changed_fields(before: JobRecord, fields: dict[str, Any]) -> list[str]:
    """`name: old → new` for each fingerprinted field that differs."""
    old, new = LATER | before.fields, LATER | fields
    return [
        f"{name}: {old.get(name)!r} → {new.get(name)!r}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
