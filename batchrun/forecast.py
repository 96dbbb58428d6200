"""What a submit would do: the plan, made or found, and what is left of it to run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from batchrun.fit import Fit, fit
from batchrun.job import Job
from batchrun.planning.plan import PlanRecord
from batchrun.planning.work import Work, WorkCounts, WorkOutline
from batchrun.prediction import outline_of, predict
from batchrun.preparation import CorpusInput, known_plan, longest_document, make_plan, plan_settings
from batchrun.records import ErrorType, Preference
from batchrun.reporter import Reporter
from batchrun.shard import Shard
from batchrun.storage import storage_errors
from batchrun.store.checkpoints import Checkpoints
from batchrun.store.lock import RunLock
from batchrun.telemetry.run_records import last_that_computed, next_number, pending_since, read_runs
from batchrun.window import Window


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """`counts` are of the shard, where one is asked for; `corpus_rows` are all rows. `too_long` is counted in `counts.unusable`, too. `estimated_seconds` is None where no rate is known;
    `estimated_by` says in words what it rests on.
    """

    job_id: str
    seed: int
    counts: WorkCounts
    outline: WorkOutline
    too_long: int
    longest_document: int
    corpus_rows: int
    estimated_seconds: float | None
    estimated_by: str = ""
    fit: Fit | None = None  # where there is a window
    shard: Shard | None = None


def forecast(
    job: Job,
    corpus: CorpusInput,
    reporter: Reporter,
    window: Window | None = None,
    prefer: Preference | None = None,
) -> Forecast:
    """Plan a corpus, or find it planned, without running it. Raises BatchrunError."""
    with planned(job, corpus, reporter) as (plan, work):
        return _forecast(job, plan, work, reporter, window or Window(), prefer)


@contextmanager
def planned(job: Job, corpus: CorpusInput, reporter: Reporter) -> Iterator[tuple[PlanRecord, Work]]:
    """The plan of a corpus, made or found, and what is to run of it, held against runs meanwhile. Raises BatchrunError."""
    for told in job.model.notes:
        reporter.note(told)
    paths = job.paths.corpus(corpus.name.corpus_id)
    lock = RunLock(paths.lock, "plan", barrier=job.paths.collection_lock)
    try:
        with storage_errors(job.workspace.home):
            checkpoints = Checkpoints(job.paths, "plan")
            plan = known_plan(paths, reporter.note)
            if plan is None or plan.signature != corpus.signature(job):
                plan = make_plan(
                    job,
                    paths,
                    corpus,
                    checkpoints,
                    "plan",
                    reporter,
                    reporter.planning,
                    pending_since(read_runs(paths.runs)),
                    next_number(job.workspace, job.job_id),
                )
            reporter.finished()
            tokens_read = plan_settings(job, tuple(plan.variables)).tokens_read
            with Work(paths, plan, job.paths.scratch, checkpoints.settled_keys, tokens_read) as work:
                yield plan, work
    finally:
        lock.release()


def _forecast(
    job: Job, plan: PlanRecord, work: Work, reporter: Reporter, window: Window, prefer: Preference | None
) -> Forecast:
    predicted = predict(job, work, reporter.note)
    outline = outline_of(job, work, job.spec.buckets.edges)
    return Forecast(
        job_id=job.job_id,
        seed=job.seed,
        counts=work.counts,
        outline=outline,
        too_long=plan.decided.get(ErrorType.PROMPT_TOO_LONG, 0),
        longest_document=longest_document(job),
        corpus_rows=plan.num_rows,
        shard=plan.shard,
        estimated_seconds=predicted.seconds,
        estimated_by=predicted.basis_text,
        fit=fit(
            window,
            predicted,
            outline,
            num_rows=work.counts.total,
            loading_seconds=known_loading(job),
            prefer=prefer,
        ),
    )


def known_loading(job: Job) -> float | None:
    """Of the job's last run that loaded its engine."""
    runs = [run.seconds.loading for run in last_that_computed(job.workspace, job.job_id)]
    return runs[-1] if runs else None
