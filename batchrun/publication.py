"""A plan and its memo table as an output file, with what made it in the file's metadata."""

from pathlib import Path

import msgspec

import batchrun
from batchrun.job import Job
from batchrun.planning.plan import PlanRecord, damaged, open_checked
from batchrun.records import RowCounts
from batchrun.store.checkpoints import Checkpoints
from batchrun.store.publish import Publication, publish
from batchrun.workspace import CorpusPaths


def publish_plan(
    job: Job, paths: CorpusPaths, plan: PlanRecord, checkpoints: Checkpoints, target: Path, owner: str
) -> RowCounts:
    """Write what there is, one row for every input row. Raises DamageError, OSError."""
    rows = open_checked(paths.plan)
    if rows.metadata.num_rows != plan.num_rows:
        raise damaged(
            paths.plan, ValueError(f"{rows.metadata.num_rows:,} rows, planned were {plan.num_rows:,}")
        )
    publication = Publication(
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
    return publish(publication, checkpoints, target, owner)
