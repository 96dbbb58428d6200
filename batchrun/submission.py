"""How a run begins: with a corpus that is planned where it is new, or from the plan and the spool alone."""

from pathlib import Path

from batchrun.errors import DamageError
from batchrun.job import Job
from batchrun.planning.plan import PlanRecord, read_intact, read_record
from batchrun.preparation import CorpusInput, known_plan, make_plan
from batchrun.reporter import Reporter
from batchrun.run_options import RunOptions
from batchrun.run_record import RunRecord
from batchrun.runner import Run
from batchrun.storage import storage_errors
from batchrun.store.checkpoints import Checkpoints
from batchrun.store.target import check_same_corpus, check_target
from batchrun.telemetry.run_records import pending_since


def submit(job: Job, corpus: CorpusInput, options: RunOptions, reporter: Reporter) -> RunRecord:
    """Start or continue the job on a corpus. Raises BatchrunError; a signal is an end like another."""
    if options.output is not None:
        check_target(options.output, [file.path for file in corpus.files])
        if not options.is_output_named:
            check_same_corpus(options.output, corpus.inputs)
    with storage_errors(job.workspace.home):
        run = Run(job, corpus.name, options, reporter)

    def planning(num_rows: int) -> None:
        options.window.require_open_to_plan(num_rows)
        reporter.planning(num_rows)

    def fresh_plan(run: Run) -> PlanRecord:
        return make_plan(
            job,
            run.paths,
            corpus,
            run.checkpoints,
            run.run_id,
            reporter,
            planning,
            pending_since(run.previous),
            run.log.record.number,
        )

    def find_plan(run: Run) -> PlanRecord:
        job.register(run.run_id, reporter.note, lambda job_id: count_ok(job, job_id))
        known = known_plan(run.paths, run.warn)
        if known is None or known.signature != corpus.signature(job):
            return fresh_plan(run)
        for note in known.notes:
            reporter.note(note)
        reporter.note(f"the corpus is unchanged since it was planned at {known.planned_at}")
        return known

    return run.execute(find_plan, fresh_plan)


def resume(job: Job, last: RunRecord, options: RunOptions, reporter: Reporter) -> RunRecord:
    """Continue from the plan and the spool, without the corpus. Raises BatchrunError."""
    known = read_record(job.paths.corpus(last.corpus_id))
    inputs = [Path(entry[0]) for entry in known.signature["files"]] if known else []
    if options.output is not None:
        check_target(options.output, inputs)
    with storage_errors(job.workspace.home):
        run = Run(job, last.corpus_name, options, reporter)

    def find_plan(run: Run) -> PlanRecord:
        known = read_intact(run.paths)
        if known is None:
            raise DamageError(
                f"there is no finished plan in {run.paths.checkpoint}", "Submit the corpus again to plan it."
            )
        return known

    return run.execute(find_plan, None)


def count_ok(job: Job, job_id: str) -> int:
    """Finished summaries of a job, over its seeds."""
    seeds = job.workspace.job(job_id, 0).seeds()
    stores = [Checkpoints(job.workspace.job(job_id, seed), "reader") for seed in seeds]
    return sum(store.count_by_rank().get(2, 0) for store in stores)
