"""Which corpora of a job are in use: held by a run, or planned or run not long ago."""

from dataclasses import dataclass
from datetime import UTC, datetime

from batchrun.planning.plan import PlanRecord, read_record
from batchrun.run_record import RunRecord, RunState
from batchrun.store.lock import holder_of
from batchrun.telemetry.run_records import read_runs
from batchrun.workspace import CorpusPaths, JobPaths


@dataclass(frozen=True, kw_only=True)
class CorpusUse:
    """A corpus of a job, its newest run, and when it was last planned or run: the latest moment that any of them tells,
    since a clock may have been set back.
    """

    paths: CorpusPaths
    last: RunRecord | None
    plan: PlanRecord | None
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
        return self.plan is None or self.plan.is_done_by(last)

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
    told = [plan.planned_at] if plan else []
    told += [text for run in runs for text in (run.started_at, run.updated_at) if text]
    return CorpusUse(
        paths=paths,
        last=runs[-1] if runs else None,
        plan=plan,
        used_at=max(map(datetime.fromisoformat, told), default=moment(paths.checkpoint.stat().st_mtime)),
        is_held=holder_of(paths.lock) is not None,
    )
