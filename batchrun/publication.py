"""A plan and its memo table as an output file, with what made it in the file's metadata."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

import batchrun
from batchrun.job import Job
from batchrun.planning.plan import PlanRecord, damaged, open_checked
from batchrun.records import RowCounts
from batchrun.store.checkpoints import Checkpoints
from batchrun.store.publish import Publication, failed_rows, publish
from batchrun.workspace import CorpusPaths


def publish_plan(
    job: Job, paths: CorpusPaths, plan: PlanRecord, checkpoints: Checkpoints, target: Path, owner: str
) -> RowCounts:
    """Write what there is, one row for every input row. Raises DamageError, OSError."""
    return publish(_publication(job, paths, plan), checkpoints, target, owner)


def failed_of_plan(
    job: Job, paths: CorpusPaths, plan: PlanRecord, checkpoints: Checkpoints
) -> Iterator[pa.Table]:
    """The rows that failed so far, as the output would have them, some at a time. Raises DamageError, OSError."""
    return failed_rows(_publication(job, paths, plan), checkpoints)


def _publication(job: Job, paths: CorpusPaths, plan: PlanRecord) -> Publication:
    rows = open_checked(paths.plan)
    if rows.metadata.num_rows != plan.num_rows:
        raise damaged(
            paths.plan, ValueError(f"{rows.metadata.num_rows:,} rows, planned were {plan.num_rows:,}")
        )
    return Publication(
        plan=rows,
        carried=open_checked(paths.carried),
        carried_types={field.name: field.type for field in plan.output_schema},
        sources=plan.sources,
        job_id=job.job_id,
        seed=job.seed,
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
