"""Every promise of the store, checked by reading every file of a job."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from batchrun.errors import BatchrunError
from batchrun.planning import spool
from batchrun.planning.plan import PlanRecord, open_checked, read_record
from batchrun.records import MemoStatus, RowStatus, RunRecord, RunState
from batchrun.store import segments
from batchrun.telemetry.run_records import latest_runs
from batchrun.workspace import CorpusPaths, Workspace


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check: what was read, and what is wrong with it, if anything."""

    what: str
    problem: str | None = None


def verify_job(workspace: Workspace, job_id: str) -> Iterator[Finding]:
    """Check segments, plans, spools and outputs of a job. Reads only; mends nothing."""
    for seed in workspace.job(job_id, 0).seeds():
        folder = workspace.job(job_id, seed).segments
        for path in segments.listed(folder):
            yield _segment(path)
    for corpus_folder, record in latest_runs(workspace, job_id):
        paths = workspace.job(job_id, record.seed).corpus(corpus_folder.name)
        plan = read_record(paths)
        if plan is None:
            yield Finding(what=str(paths.plan_record), problem="no finished plan; submit the corpus again")
            continue
        yield from _plan(paths, plan)
        if record.state is RunState.COMPLETE and record.output:
            yield _output(Path(record.output), paths, record)


def _segment(path: Path) -> Finding:
    if not segments.is_intact(path):
        return Finding(what=str(path), problem="its bytes are not those it was named for")
    table = pq.read_table(path)
    if not table.schema.equals(segments.SCHEMA):
        return Finding(what=str(path), problem="it has another schema")
    ok = table.filter(pc.equal(table["status"], MemoStatus.OK))
    if pc.any(pc.fill_null(pc.equal(pc.utf8_length(ok["summary"]), 0), True)).as_py():
        return Finding(what=str(path), problem="an ok row has no summary")
    return Finding(what=f"{path} ({table.num_rows:,} rows)")


def _plan(paths: CorpusPaths, plan: PlanRecord) -> Iterator[Finding]:
    for path in (paths.plan, paths.carried):
        try:
            num_rows = sum(batch.num_rows for batch in open_checked(path).iter_batches())
        except (BatchrunError, OSError, pa.ArrowException) as error:
            yield Finding(what=str(path), problem=str(error).splitlines()[0])
        else:
            wrong = (
                f"{num_rows:,} rows, planned were {plan.num_rows:,}" if num_rows != plan.num_rows else None
            )
            yield Finding(what=f"{path} ({num_rows:,} rows)", problem=wrong)
    for part in spool.parts(paths.spool):
        try:
            num_rows = sum(batch.num_rows for batch in part.batches())
        except BatchrunError as error:
            yield Finding(what=str(part.path), problem=error.reason)
        else:
            yield Finding(what=f"{part.path} ({num_rows:,} documents)")


def _output(path: Path, paths: CorpusPaths, record: RunRecord) -> Finding:
    """Rows in are rows out: the output has the plan's rows, each with a status, none without its reason."""
    try:
        table = pq.read_table(path, columns=["row", "status", "summary", "error_type"])
        planned = open_checked(paths.plan).read(columns=["row"])
    except (BatchrunError, OSError, pa.ArrowException) as error:
        return Finding(what=str(path), problem=str(error).splitlines()[0])
    counts = {item["values"]: item["counts"] for item in pc.value_counts(table["status"]).to_pylist()}
    expected = {status: number for status in RowStatus if (number := getattr(record.rows, status))}
    if not table["row"].combine_chunks().equals(planned["row"].combine_chunks()):
        return Finding(what=str(path), problem="its rows are not those of the plan")
    if counts != expected:
        return Finding(what=str(path), problem=f"it has {counts}, the run recorded {expected}")
    ok = pc.equal(table["status"], RowStatus.OK)
    if pc.any(pc.not_equal(ok, pc.is_valid(table["summary"]))).as_py():
        return Finding(what=str(path), problem="a row is ok without a summary, or has one and is not ok")
    return Finding(what=f"{path} ({table.num_rows:,} rows)")
