"""Which run of a job a command means: the newest of its corpora, unless told."""

from dataclasses import replace
from pathlib import Path

from batchrun.errors import ConfigError
from batchrun.run_record import RunRecord, RunState
from batchrun.shard import Shard
from batchrun.store.lock import UNKNOWN, holder_of
from batchrun.telemetry.run_records import damaged_records, latest_runs, read_run
from batchrun.workspace import Workspace


def is_live(folder: Path, record: RunRecord) -> bool:
    """Whether the run goes on: it holds the lock of its corpus, whatever its record says."""
    holder = holder_of(folder / "lock")
    if holder is None:
        return False
    is_unnamed = holder.run_id == UNKNOWN
    return record.state is RunState.RUNNING if is_unnamed else holder.run_id == record.run_id


def standing(folder: Path, record: RunRecord) -> RunRecord:
    """The record of a run with the state that it has in truth, whatever it says."""
    if is_live(folder, record):
        return replace(record, state=RunState.RUNNING, stop_reason=None, exit_code=None)
    if record.state is RunState.RUNNING:
        return replace(record, state=RunState.INTERRUPTED, stop_reason="killed")
    return record


def standing_runs(workspace: Workspace, job_id: str | None = None) -> list[RunRecord]:
    """The last run of each corpus of a job, or of all jobs, as it stands. Raises ConfigError for no such job."""
    return [
        as_it_stands(folder, record)
        for each in _job_ids(workspace, job_id)
        for folder, record in latest_runs(workspace, each)
    ]


def damaged_runs(workspace: Workspace, job_id: str | None = None) -> list[Path]:
    """Records of the same that are damaged, and with them what they would say."""
    return [
        path
        for each in _job_ids(workspace, job_id)
        for folder in workspace.corpora_of(each)
        for path in damaged_records(folder / "runs")
    ]


def _job_ids(workspace: Workspace, job_id: str | None) -> list[str]:
    return [workspace.find_job(job_id)] if job_id else workspace.job_ids()


def as_it_stands(folder: Path, last: RunRecord) -> RunRecord:
    """The run that holds the lock, be it not the newest by the clock; else the last, which goes on no more."""
    holder = holder_of(folder / "lock")
    return standing(folder, (holder and read_run(folder / "runs", holder.run_id)) or last)


def last_run(
    workspace: Workspace, job_id: str, *, seed: int | None, corpus_id: str | None, shard: Shard | None = None
) -> RunRecord:
    """The newest run of a job, of one seed, corpus or shard where given; the id of a whole corpus stands for its
    shards, too. Raises ConfigError where there is none.
    """
    records = [record for _, record in latest_runs(workspace, job_id)]
    wanted = [
        record
        for record in records
        if seed in (None, record.seed)
        and shard in (None, record.shard)
        and any(name.startswith(corpus_id or "") for name in (record.corpus_id, record.whole_id or ""))
    ]
    if wanted:
        return wanted[-1]
    known = ", ".join(map(_name, records)) or "none"
    raise ConfigError(f"job {job_id} has no such run; its runs: {known}", "Submit a corpus to it first.")


def _name(record: RunRecord) -> str:
    shard = f" shard {record.shard}" if record.shard else ""
    return f"seed {record.seed} corpus {record.corpus_id}{shard}"
