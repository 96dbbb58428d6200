"""What a run has left behind: its record, its timeline, its requests, and the job it was of."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from batchrun.errors import ConfigError, DamageError, UsageError
from batchrun.run_record import RunRecord, RunState
from batchrun.selection import as_it_stands, damaged_runs, standing
from batchrun.store import job_file
from batchrun.store.job_file import JobRecord
from batchrun.telemetry.run_records import latest_runs, order, read_runs
from batchrun.telemetry.timeline import read_timeline, timeline_of
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
        """A table of `timeline.SCHEMA`; empty where the run computed nothing or its file is lost or damaged."""
        seconds = self.record.seconds
        return read_timeline(self.paths.timelines, self.record.run_id, seconds.planning + seconds.loading)

    @property
    def timeline_file(self) -> Path:
        return timeline_of(self.paths.timelines, self.record.run_id)

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


def damaged_files(files: list[Path]) -> list[Path]:
    """Those of some Parquet files that can not be opened; damage may be deeper."""

    def opens(path: Path) -> bool:
        try:
            pq.read_metadata(path)
        except (OSError, pa.ArrowException):
            return False
        return True

    return [path for path in files if not opens(path)]


def find_run(workspace: Workspace, given: str) -> RunFacts:
    """The newest run of a job, or the run, whose id `given` is or is the only beginning of.

    Raises UsageError for an empty id, ConfigError where there is no such run, DamageError where its record is damaged.
    """
    if not given:
        raise UsageError("an empty word is no id", "Give that of a job or a run: batchrun status lists them.")
    found = [facts for facts in _all_runs(workspace) if facts.record.run_id.startswith(given)]
    if len(found) == 1:
        return found[0]
    if found:
        known = ", ".join(facts.record.run_id for facts in found)
        raise ConfigError(f"run {given!r} is ambiguous: {known}", "Give one of these ids.")
    _refuse([path for path in damaged_runs(workspace) if path.stem.startswith(given)])
    job_id = workspace.find_job(given)
    latest = latest_runs(workspace, job_id)
    if not latest:
        _refuse(damaged_runs(workspace, job_id))
        raise ConfigError(f"job {job_id} has no run yet", "Submit a corpus to it first.")
    return _facts(workspace, *latest[-1])


def _refuse(damaged: list[Path]) -> None:
    if damaged:
        raise DamageError(
            f"the run record {damaged[-1]} is damaged: nothing is known of that run",
            "Give another run, or submit again: what is finished is kept.",
            damaged[-1],
        )


def run_that_computed(workspace: Workspace, given: str, *, may_go_on: bool = False) -> RunFacts:
    """The run that is asked for by its id; by its job's, the newest that computed something, or the newest of all
    where none did. Where it `may_go_on`, one that goes on comes before all. Raises as `find_run` does.
    """
    facts = find_run(workspace, given)
    if facts.record.run_id.startswith(given) or (may_go_on and facts.record.state is RunState.RUNNING):
        return facts
    computed = [run for run in _job_records(facts) if run.rows.computed]
    return find_run(workspace, max(computed, key=order).run_id) if computed else facts


def newer_runs(facts: RunFacts) -> list[RunRecord]:
    """Those of the same job, of all seeds and corpora, the oldest first."""
    newer = [run for run in _job_records(facts) if order(run) > order(facts.record)]
    return sorted(newer, key=order)


def other_shards(facts: RunFacts) -> list[RunRecord]:
    """Of a shard, the newest runs of the other shards of its corpus that have one, by number."""
    own = facts.record
    found = [
        as_it_stands(folder, record)
        for folder, record in latest_runs(facts.workspace, own.job_id)
        if own.shard and record.shard and record.shard.of == own.shard.of and record.shard != own.shard
        if (record.seed, record.whole_id) == (own.seed, own.whole_id)
    ]
    return sorted(found, key=lambda record: record.shard.number if record.shard else 0)


def runs_of_job(facts: RunFacts) -> list[RunFacts]:
    """All runs of the same job, seed and corpus, the oldest first."""
    return [_facts(facts.workspace, facts.paths.checkpoint, record) for record in read_runs(facts.paths.runs)]


def _job_records(facts: RunFacts) -> list[RunRecord]:
    """Of all seeds and corpora."""
    folders = facts.workspace.corpora_of(facts.record.job_id)
    return [run for folder in folders for run in read_runs(folder / "runs")]


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
