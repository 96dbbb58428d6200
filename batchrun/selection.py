"""Which run of a job a command means: the newest of its corpora, unless told."""

from dataclasses import replace
from pathlib import Path

from batchrun.errors import ConfigError
from batchrun.records import RunRecord, RunState
from batchrun.shard import Shard
from batchrun.store.lock import holder_of
from batchrun.telemetry.run_records import latest_runs
from batchrun.workspace import Workspace


def is_live(folder: Path, record: RunRecord) -> bool:
    """Whether the run goes on: it says so, and its lock is held."""
    return record.state is RunState.RUNNING and holder_of(folder / "lock") is not None


def true_state(folder: Path, record: RunRecord) -> RunState:
    """The state of a run; one that says `running` and holds no lock was interrupted."""
    if record.state is RunState.RUNNING and not is_live(folder, record):
        return RunState.INTERRUPTED
    return record.state


def standing_runs(workspace: Workspace, job_id: str | None = None) -> list[RunRecord]:
    """The last run of each corpus of a job, or of all jobs, as it stands. Raises ConfigError for no such job."""
    job_ids = [workspace.find_job(job_id)] if job_id else workspace.job_ids()
    return [
        _with_state(record, true_state(folder, record))
        for each in job_ids
        for folder, record in latest_runs(workspace, each)
    ]


def _with_state(record: RunRecord, state: RunState) -> RunRecord:
    lost = state is RunState.INTERRUPTED and record.state is RunState.RUNNING
    return replace(record, state=state, stop_reason="killed" if lost else record.stop_reason)


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
