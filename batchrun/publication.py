"""A plan and its memo table as an output file, with what made it in the file's metadata."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

import batchrun
from batchrun.job import Job
from batchrun.planning.plan import PlanRecord, damaged, open_checked, statuses_of
from batchrun.run_record import RowCounts
from batchrun.shard import Shard
from batchrun.store.checkpoints import Checkpoints
from batchrun.store.publish import Publication, failed_rows, publish
from batchrun.store.standing import count_rows
from batchrun.workspace import CorpusPaths


def publish_plan(
    job: Job, paths: CorpusPaths, plan: PlanRecord, checkpoints: Checkpoints, target: Path, owner: str
) -> RowCounts:
    """Write what there is, one row for every input row. Raises DamageError, OSError."""
    return sum(publish_shards(job, paths, plan, checkpoints, target, owner), RowCounts())


def publish_shards(
    job: Job, paths: CorpusPaths, plan: PlanRecord, checkpoints: Checkpoints, target: Path, owner: str
) -> list[RowCounts]:
    """The same, with the rows of each share of the corpus in the split that the plan is of."""
    return publish(_publication(job, paths, plan), checkpoints, target, owner)


def count_shard(paths: CorpusPaths, plan: PlanRecord, shard: Shard, checkpoints: Checkpoints) -> RowCounts:
    """How a shard's rows stand, with every segment hashed again as for an output. Raises DamageError, OSError."""
    counts = checkpoints.read(
        lambda database, _: count_rows(database, statuses_of(paths.plan), shard.of), check_all=True
    )
    rows = sum(counts, RowCounts())
    _check_length(paths, plan, rows.total)
    return counts[shard.ordinal]


def failed_of_plan(
    job: Job, paths: CorpusPaths, plan: PlanRecord, checkpoints: Checkpoints
) -> Iterator[pa.Table]:
    """The rows that failed so far, as the output would have them, some at a time. Raises DamageError, OSError."""
    return failed_rows(_publication(job, paths, plan), checkpoints)


def _check_length(paths: CorpusPaths, plan: PlanRecord, num_rows: int) -> None:
    if num_rows != plan.num_rows:
        raise damaged(paths.plan, ValueError(f"{num_rows:,} rows, planned were {plan.num_rows:,}"))


def _publication(job: Job, paths: CorpusPaths, plan: PlanRecord) -> Publication:
    rows = open_checked(paths.plan)
    _check_length(paths, plan, rows.metadata.num_rows)
    return Publication(
        plan=rows,
        carried=open_checked(paths.carried),
        carried_types={field.name: field.type for field in plan.output_schema},
        sources=plan.sources,
        job_id=job.job_id,
        seed=job.seed,
        num_shares=plan.shard.of if plan.shard else 1,
        metadata={
            "batchrun_version": batchrun.__version__,
            "job_id": job.job_id,
            "fingerprint": job.fingerprint,
            "seed": job.seed,
            "corpus": plan.inputs,
            "spec": msgspec.to_builtins(job.spec),
            "model": job.model.content,
        },
    )
