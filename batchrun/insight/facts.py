"""What a run has left behind: its record, its timeline, its requests, and the job it was of."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from batchrun.errors import ConfigError
from batchrun.run_record import RunRecord
from batchrun.selection import standing
from batchrun.store import job_file
from batchrun.store.job_file import JobRecord
from batchrun.telemetry.run_records import latest_runs, read_runs
from batchrun.telemetry.timeline import read_timeline
from batchrun.workspace import CorpusPaths, Workspace


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Of one run, as it stands; it may go on."""

    workspace: Workspace
    paths: CorpusPaths
    job: JobRecord
    record: RunRecord

    @property
    def timeline(self) -> pa.Table:
        """A table of `timeline.SCHEMA`; empty where the run computed nothing or its file is lost."""
        seconds = self.record.seconds
        return read_timeline(self.paths.timelines, self.record.run_id, seconds.planning + seconds.loading)

    @property
    def requests(self) -> list[Path]:
        """Files of request telemetry: one, or the parts of a run that goes on or was killed; parts that a whole file
        was joined from are in it.
        """
        whole = self.paths.requests / f"{self.record.run_id}.parquet"
        return (
            [whole] if whole.exists() else sorted(self.paths.requests.glob(f"{self.record.run_id}.*parquet"))
        )

    @property
    def has_own_clock(self) -> bool:
        """Whether the engine's time is that of a simulator, which has nothing to do with the machine's."""
        return self.job.spec.engine.options.get("clock") == "virtual"

    @property
    def scratch(self) -> Path:
        return self.workspace.job(self.record.job_id, self.record.seed).scratch


def find_run(workspace: Workspace, given: str) -> RunFacts:
    """The newest run of a job, or the run, whose id `given` is or is the only beginning of. Raises ConfigError."""
    found = [facts for facts in _all_runs(workspace) if facts.record.run_id.startswith(given)]
    if len(found) == 1:
        return found[0]
    if found:
        known = ", ".join(facts.record.run_id for facts in found)
        raise ConfigError(f"run {given!r} is ambiguous: {known}", "Give one of these ids.")
    job_id = workspace.find_job(given)
    latest = [(folder, record) for folder, record in latest_runs(workspace, job_id)]
    if not latest:
        raise ConfigError(f"job {job_id} has no run yet", "Submit a corpus to it first.")
    return _facts(workspace, *latest[-1])


def runs_of_job(facts: RunFacts) -> list[RunFacts]:
    """All runs of the same job, seed and corpus, the oldest first."""
    return [_facts(facts.workspace, facts.paths.checkpoint, record) for record in read_runs(facts.paths.runs)]


def _all_runs(workspace: Workspace) -> list[RunFacts]:
    folders = [folder for job_id in workspace.job_ids() for folder, _ in latest_runs(workspace, job_id)]
    return [_facts(workspace, folder, record) for folder in folders for record in read_runs(folder / "runs")]


def _facts(workspace: Workspace, folder: Path, record: RunRecord) -> RunFacts:
    paths = workspace.job(record.job_id, record.seed)
    job = job_file.read(paths.job_record)
    if job is None:
        raise ConfigError(f"{paths.job_record} is gone", "Submit the corpus again: it is made anew.")
    return RunFacts(
        workspace=workspace, paths=paths.corpus(folder.name), job=job, record=standing(folder, record)
    )
