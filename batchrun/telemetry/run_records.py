"""Run records: `runs/<run_id>.json`, rewritten while a run goes on, kept afterwards."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from batchrun import atomic_file
from batchrun.run_record import RunRecord, RunState
from batchrun.seal import decode, encode
from batchrun.workspace import Workspace


class RunLog:
    """The record of one run, and the only writer of its file."""

    def __init__(
        self, folder: Path, record: RunRecord, export: Callable[[RunRecord], None] = lambda _: None
    ) -> None:
        """`export` is given the record whenever it is written."""
        self._export = export
        atomic_file.make_folder(folder)
        self.path = folder / f"{record.run_id}.json"
        self.record = record
        self.write()

    def update(self, **changes: object) -> RunRecord:
        """Change the record in memory."""
        self.record = replace(self.record, **changes)  # type: ignore[arg-type]
        return self.record

    def write(self, **changes: object) -> None:
        """Change the record and make it durable. Raises OSError."""
        self.update(**changes, updated_at=timestamp())
        atomic_file.write_bytes(self.path, encode(self.record), self.record.run_id)
        self._export(self.record)


def timestamp() -> str:
    """Now, as ISO 8601 in UTC, fine enough to tell which of two runs came last."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def read_runs(folder: Path) -> list[RunRecord]:
    """The records of a corpus, oldest first; damaged ones are passed over."""
    found = [_read(path) for path in folder.glob("*.json")]
    return sorted((record for record in found if record), key=order)


def damaged_records(folder: Path) -> list[Path]:
    """Run records that can not be read, are not what was written, or stand under another run's name."""
    return [path for path in sorted(folder.glob("*.json")) if path.exists() and _read(path) is None]


def order(record: RunRecord) -> tuple[int, str, str]:
    """By which runs of a job stand: a clock that was set back makes none older."""
    return record.number, record.started_at, record.run_id


def next_number(workspace: Workspace, job_id: str) -> int:
    """Of a run that begins now."""
    return 1 + max((record.number for _, record in latest_runs(workspace, job_id)), default=0)


def read_run(folder: Path, run_id: str) -> RunRecord | None:
    """The record of one run, or None where there is none, or a damaged one."""
    return _read(folder / f"{run_id}.json")


def _read(path: Path) -> RunRecord | None:
    try:
        record = decode(path.read_bytes(), RunRecord)
    except (FileNotFoundError, msgspec.MsgspecError):  # another failure to read is no damage
        return None
    return record if record.run_id == path.stem else None


def latest_runs(workspace: Workspace, job_id: str) -> list[tuple[Path, RunRecord]]:
    """For each seed and corpus of a job its folder and last record; the newest last."""
    folders = workspace.corpora_of(job_id)
    found = [(folder, runs[-1]) for folder in folders if (runs := read_runs(folder / "runs"))]
    return sorted(found, key=lambda pair: order(pair[1]))


def last_that_computed(workspace: Workspace, job_id: str) -> list[RunRecord]:
    """For each seed and corpus of a job its last run that computed something; the newest last. What was measured of a
    job is theirs to tell: the newest run of all may have found everything done, or have begun just now.
    """
    runs = [
        [run for run in read_runs(folder / "runs") if run.rows.computed]
        for folder in workspace.corpora_of(job_id)
    ]
    return sorted((computed[-1] for computed in runs if computed), key=order)


def pending_since(runs: list[RunRecord]) -> str:
    """When the oldest waiting row was first planned: carried on while the runs before did not complete."""
    last = runs[-1] if runs else None
    if last is not None and last.state is not RunState.COMPLETE and last.first_planned_at:
        return last.first_planned_at
    return timestamp()
