"""What a job has by now, published or listed, also while it runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from batchrun.documents import plain_values
from batchrun.errors import InterruptedRunError
from batchrun.job import Job
from batchrun.planning.plan import PlanRecord, is_retired, read_intact
from batchrun.publication import failed_of_plan, publish_plan
from batchrun.records import RowCounts
from batchrun.storage import storage_errors
from batchrun.store.checkpoints import Checkpoints
from batchrun.store.target import check_target

READER = "reader"


def publish_now(job: Job, corpus_id: str, target: Path) -> RowCounts:
    """Write what there is to `target`. Raises BatchrunError."""
    plan = finished_plan(job, corpus_id)
    check_target(target, [Path(entry[0]) for entry in plan.signature["files"]])
    with storage_errors(job.workspace.home):
        return publish_plan(
            job, job.paths.corpus(corpus_id), plan, Checkpoints(job.paths, READER), target, READER
        )


def failed_rows(job: Job, corpus_id: str) -> Iterator[dict[str, Any]]:
    """The failed rows by now, in input order: where each stands, and why it failed."""
    plan = finished_plan(job, corpus_id)
    columns = ["source", "row", "error_type", "error"]
    with storage_errors(job.workspace.home):
        store = Checkpoints(job.paths, READER)
        for failed in failed_of_plan(job, job.paths.corpus(corpus_id), plan, store):
            ids = plain_values(failed["doc_id"].combine_chunks())
            for row, plain in zip(failed.select(columns).to_pylist(), ids, strict=True):
                yield row | {"doc_id": plain if isinstance(plain, int | str | None) else str(plain)}


def finished_plan(job: Job, corpus_id: str) -> PlanRecord:
    """The corpus' valid plan. Raises InterruptedRunError where it is not planned to the end, or damaged."""
    paths = job.paths.corpus(corpus_id)
    plan = read_intact(paths)
    if plan is None and is_retired(paths):
        raise InterruptedRunError(
            f"the plan of this corpus was not used for long, and gc took it away from {paths.checkpoint}",
            "Submit the corpus again: what the memo table still has is not computed again.",
        )
    if plan is None:
        raise InterruptedRunError(
            "this corpus is not planned to its end yet", "Wait for its run, or submit it again."
        )
    return plan
