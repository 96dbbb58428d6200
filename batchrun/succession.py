"""Which corpus a corpus follows: its own last completed run, or yesterday's under another name."""

from dataclasses import dataclass

from batchrun.job import Job
from batchrun.planning.departures import Departures, count_departures, plan_of
from batchrun.run_record import RunRecord, RunState
from batchrun.shard import WHOLE, CorpusName, Shard
from batchrun.telemetry.run_records import order, read_runs
from batchrun.workspace import CorpusPaths, JobPaths


@dataclass(frozen=True, kw_only=True)
class Succession:
    """The completed run that this one follows, and the texts that left since."""

    run_id: str
    departed: int


def last_complete(runs: list[RunRecord]) -> RunRecord | None:
    """The newest completed run of some, given oldest first."""
    return next((run for run in reversed(runs) if run.state is RunState.COMPLETE), None)


def find_succession(job: Job, corpus: CorpusName) -> Succession | None:
    """Compare the corpus' plan with that of the run it follows, or None where it follows none.

    A corpus follows itself. One that never completed follows the corpus of this job and seed that completed
    last, if at least half of that one's texts are in it: a file of another name that holds less of it is
    another corpus, and nothing departed. Of a shard its own texts alone are compared; shards of one corpus do not
    follow each other.
    """
    own = job.paths.corpus(corpus.corpus_id)
    shard = corpus.shard or WHOLE
    before = last_complete(read_runs(own.runs))
    if before is not None:
        found = _compare(job.paths, own, before, shard)
        return Succession(run_id=before.run_id, departed=found.departed) if found else None
    before = _newest_of_others(job.paths, corpus)
    found = _compare(job.paths, own, before, shard) if before else None
    if before is None or found is None or found.stayed < found.departed:
        return None
    return Succession(run_id=before.run_id, departed=found.departed)


def _newest_of_others(paths: JobPaths, corpus: CorpusName) -> RunRecord | None:
    others = [folder for folder in paths.corpora.glob("*") if folder.name != corpus.corpus_id]
    completed = [run for folder in others if (run := last_complete(read_runs(folder / "runs")))]
    earlier = [run for run in completed if run.corpus_name.id_of_whole != corpus.id_of_whole]
    return max(earlier, key=order, default=None)


def _compare(job: JobPaths, now: CorpusPaths, before: RunRecord, shard: Shard) -> Departures | None:
    plan = plan_of(job.corpus(before.corpus_id), before.run_id)
    if plan is None:
        return None
    if plan == now.plan:
        return Departures(departed=0, stayed=0)
    return count_departures(plan, now.plan, job.scratch, shard)
