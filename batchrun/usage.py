"""Which corpora of a job are in use: held by a run, or planned or run not long ago."""

from dataclasses import dataclass
from datetime import UTC, datetime

from batchrun.planning.plan import read_record
from batchrun.records import RunRecord, RunState
from batchrun.store.lock import holder_of
from batchrun.telemetry.run_records import read_runs
from batchrun.workspace import CorpusPaths, JobPaths


@dataclass(frozen=True, kw_only=True)
class CorpusUse:
    """A corpus of a job, its newest run, and when it was last planned or run."""

    paths: CorpusPaths
    last: RunRecord | None
    planned_at: datetime | None
    used_at: datetime
    is_held: bool

    @property
    def name(self) -> str:
        if self.last is None or not self.last.corpus:
            return self.paths.checkpoint.name
        return self.last.corpus[0] + (f" shard {self.last.shard}" if self.last.shard else "")

    @property
    def is_spent(self) -> bool:
        """Whether its spool has nothing to ask for: its plan is run, with no row for `resume --failed`."""
        last = self.last
        if last is None or last.state is not RunState.COMPLETE or last.rows.failed or self.is_held:
            return False
        return self.planned_at is None or self.planned_at <= datetime.fromisoformat(last.updated_at)

    def is_older(self, cutoff: datetime) -> bool:
        """Whether nobody used it since; what a run holds is in use."""
        return not self.is_held and self.used_at < cutoff


def find_uses(paths: JobPaths) -> list[CorpusUse]:
    """The corpora of one job and seed."""
    folders = (path for path in sorted(paths.corpora.glob("*")) if path.is_dir())
    return [_use_of(paths.corpus(folder.name)) for folder in folders]


def moment(seconds: float) -> datetime:
    """A file's time."""
    return datetime.fromtimestamp(seconds, UTC)


def _use_of(paths: CorpusPaths) -> CorpusUse:
    runs, plan = read_runs(paths.runs), read_record(paths)
    last = runs[-1] if runs else None
    planned_at = datetime.fromisoformat(plan.planned_at) if plan else None
    told = [planned_at, *(datetime.fromisoformat(text) for text in _moments(last))]
    return CorpusUse(
        paths=paths,
        last=last,
        planned_at=planned_at,
        used_at=max((each for each in told if each), default=moment(paths.checkpoint.stat().st_mtime)),
        is_held=holder_of(paths.lock) is not None,
    )


def _moments(run: RunRecord | None) -> list[str]:
    return [text for text in (run.started_at, run.updated_at) if text] if run else []
