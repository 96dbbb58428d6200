"""What a job has by now, published or listed, also while it runs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchrun.documents import plain_values
from batchrun.errors import DamageError, InterruptedRunError
from batchrun.job import Job
from batchrun.planning.plan import PlanRecord, is_retired, read_intact
from batchrun.publication import failed_of_plan, publish_shards
from batchrun.run_record import RowCounts, RunRecord
from batchrun.split import Split, find_split
from batchrun.storage import storage_errors
from batchrun.store.checkpoints import Checkpoints
from batchrun.store.target import check_target

READER = "reader"


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What was published, or is known by now: the rows, and of a corpus in shards those of each."""

    rows: RowCounts
    split: Split | None = None
    notes: list[str] = field(default_factory=list)
    by_shard: list[RowCounts] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        """What a person should know of the shards."""
        return [*self.notes, *(self.split.lines(self.by_shard) if self.split else [])]


def publish_now(job: Job, last: RunRecord, target: Path) -> Snapshot:
    """Write what there is of the corpus of a run to `target`; of a shard's run, of all shards of its split.
    Raises BatchrunError.
    """
    split = find_split(job, last) if last.shard else None
    notes: list[str] = []
    corpus_id, plan = _standing_plan(job, last, split, notes.append)
    check_target(target, [Path(entry[0]) for entry in plan.signature["files"]])
    with storage_errors(job.workspace.home):
        counts = publish_shards(
            job, job.paths.corpus(corpus_id), plan, Checkpoints(job.paths, READER), target, READER
        )
    return Snapshot(rows=sum(counts, RowCounts()), split=split, notes=notes, by_shard=counts if split else [])


def _standing_plan(
    job: Job, last: RunRecord, split: Split | None, note: Callable[[str], None]
) -> tuple[str, PlanRecord]:
    """That of the corpus; of a split the first of its shards' that is not damaged, since each has all rows."""
    damage: DamageError | None = None
    for corpus_id, _ in split.plans if split else []:
        try:
            return corpus_id, finished_plan(job, corpus_id)
        except DamageError as error:
            note(f"{error.reason}; another shard's plan stands for it")
            damage = error
    if damage is not None:
        raise damage
    return last.corpus_id, finished_plan(job, last.corpus_id)


def failed_rows(
    job: Job, last: RunRecord, note: Callable[[str], None] = lambda _: None
) -> Iterator[dict[str, Any]]:
    """The failed rows of a run's corpus by now, of all shards, in input order: where each stands, and why it failed.
    `note` is told of shards that have rows which nobody tried.
    """
    split = find_split(job, last) if last.shard else None
    corpus_id, plan = _standing_plan(job, last, split, note)
    for line in split.untried if split else []:
        note(line)
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
