"""Every promise of the store, checked by reading every file of a job."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from batchrun.database import DatabaseError
from batchrun.errors import BatchrunError, ConfigError, DamageError
from batchrun.planning import spool
from batchrun.planning.plan import PlanRecord, is_retired, open_checked, read_intact, statuses_of
from batchrun.records import MemoStatus, RowStatus
from batchrun.run_record import RunRecord, RunState
from batchrun.shard import Shard
from batchrun.storage import storage_errors
from batchrun.store import job_file, segments
from batchrun.store.audit import Audit
from batchrun.store.lock import holder_of
from batchrun.store.rows import ROWS_AT_ONCE
from batchrun.telemetry.run_records import damaged_records, latest_runs
from batchrun.workspace import CorpusPaths, JobPaths, Workspace


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check: what was read, and what is wrong with it, if anything."""

    what: str
    problem: str | None = None


def verify_job(workspace: Workspace, job_id: str) -> Iterator[Finding]:
    """Check job.json, segments, run records, plans, spools and outputs of a job. Reads only; mends nothing.
    Runs may go on beside.
    """
    latest = dict(latest_runs(workspace, job_id))
    writers = _writers(workspace)
    yield _job_file(workspace.job(job_id, 0).job_record)
    for seed in workspace.job(job_id, 0).seeds():
        job = workspace.job(job_id, seed)
        folders = (path for path in sorted(job.corpora.glob("*")) if path.is_dir())
        corpora = [(job.corpus(folder.name), latest.get(folder)) for folder in folders]
        with storage_errors(workspace.home):
            found = _seed(job, corpora, writers)
        yield from found


def _job_file(path: Path) -> Finding:
    try:
        job_file.read(path)
    except ConfigError as error:
        return Finding(what=str(path), problem=str(error))
    return Finding(what=str(path))


def _seed(
    job: JobPaths, corpora: list[tuple[CorpusPaths, RunRecord | None]], writers: dict[str | None, str]
) -> list[Finding]:
    """Where a run compacts meanwhile and a segment is gone, all is listed and checked again."""
    while True:
        listed = segments.listed(job.segments)
        try:
            found = _check(job, listed, corpora, writers)
        except (DatabaseError, OSError):
            if all(path.exists() for path in listed):
                raise
        else:
            if all(path.exists() for path in listed):
                return found


def _check(
    job: JobPaths,
    listed: list[Path],
    corpora: list[tuple[CorpusPaths, RunRecord | None]],
    writers: dict[str | None, str],
) -> list[Finding]:
    found = {path: _segment(path) for path in listed}
    intact = [path for path, finding in found.items() if finding.problem is None]
    with Audit(intact, job.scratch) as audit:
        of_corpora = [
            finding for paths, record in corpora for finding in _corpus(paths, record, writers, audit)
        ]
    return [*found.values(), *of_corpora]


def _writers(workspace: Workspace) -> dict[str | None, str]:
    """For each output the run that published it last, whatever its job and corpus."""
    runs = [record for job_id in workspace.job_ids() for _, record in latest_runs(workspace, job_id)]
    published = [record for record in runs if record.seconds.publishing]
    return {
        record.output: record.run_id for record in sorted(published, key=lambda record: record.updated_at)
    }


def _corpus(
    paths: CorpusPaths, record: RunRecord | None, writers: dict[str | None, str], audit: Audit
) -> Iterator[Finding]:
    for path in damaged_records(paths.runs):
        yield Finding(what=str(path), problem="it is not what its run wrote; the next run sets it aside")
    yield from _requests(paths)
    try:
        plan = read_intact(paths)
    except DamageError as error:
        yield Finding(what=str(error.path), problem=error.reason)
        return
    if plan is None and is_retired(paths):
        yield Finding(what=f"{paths.checkpoint} (its plan was taken away by gc)")
        return
    if plan is None and (holder := holder_of(paths.lock)):
        yield Finding(what=f"{paths.checkpoint} ({holder} plans it just now)")
        return
    if plan is None:
        yield Finding(what=str(paths.plan_record), problem="no finished plan; submit the corpus again")
        return
    found = list(_plan(paths, plan))
    yield from found
    if record is not None and plan.shard is not None and not any(each.problem for each in found):
        yield from _shard(paths, plan, plan.shard, record, audit)
    if (
        record is None
        or record.state is not RunState.COMPLETE
        or not record.output
        or any(each.problem for each in found)
    ):
        return
    writer = writers.get(record.output, record.run_id)
    if writer != record.run_id:
        yield Finding(what=f"{record.output} (run {writer} has published another output there since)")
        return
    yield _output(Path(record.output), paths, plan, record, audit)


def _requests(paths: CorpusPaths) -> Iterator[Finding]:
    for path in sorted(paths.requests.glob("*.parquet")):
        try:
            num_rows = sum(batch.num_rows for batch in open_checked(path).iter_batches())
        except (DamageError, OSError, pa.ArrowException):
            yield Finding(what=f"{path} (damaged: request telemetry, on which nothing depends)")
        else:
            yield Finding(what=f"{path} ({num_rows:,} requests)")


def _shard(
    paths: CorpusPaths, plan: PlanRecord, shard: Shard, record: RunRecord, audit: Audit
) -> Iterator[Finding]:
    """A completed shard has no output to be held against: its rows are, and all have a verdict."""
    if record.state is not RunState.COMPLETE or not plan.is_done_by(record):
        yield Finding(what=f"shard {shard} of {paths.checkpoint} (not run to its end since it was planned)")
        return
    rows = audit.count_rows(statuses_of(paths.plan), shard.of)[shard.ordinal]
    problem = _books(record, rows.total, plan.num_to_account)
    if problem is None and rows.pending:
        problem = (
            f"{rows.pending:,} of {rows.total:,} rows are in no segment, and run {record.run_id} completed"
        )
    yield Finding(what=f"shard {shard} of {paths.checkpoint} ({rows.total:,} rows)", problem=problem)


def _segment(path: Path) -> Finding:
    if not segments.is_intact(path):
        return Finding(what=str(path), problem="its bytes are not those it was named for")
    file = pq.ParquetFile(path)
    if not file.schema_arrow.equals(segments.SCHEMA):
        return Finding(what=str(path), problem="it has another schema")
    for rows in file.iter_batches(columns=["status", "summary"]):
        ok = rows.filter(pc.equal(rows["status"], MemoStatus.OK))
        if pc.any(pc.fill_null(pc.equal(pc.utf8_length(ok["summary"]), 0), True)).as_py():
            return Finding(what=str(path), problem="an ok row has no summary")
    return Finding(what=f"{path} ({file.metadata.num_rows:,} rows)")


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
            part.check()
            num_rows = sum(batch.num_rows for batch in part.batches())
        except BatchrunError as error:
            yield Finding(what=str(part.path), problem=error.reason)
        else:
            yield Finding(what=f"{part.path} ({num_rows:,} documents)")


def _output(path: Path, paths: CorpusPaths, plan: PlanRecord, record: RunRecord, audit: Audit) -> Finding:
    """Rows in are rows out: as the run counted them, as the plan orders them, as the memo table has them."""
    if not path.exists():
        return Finding(what=f"{path} (not there any more; `batchrun results` publishes it again)")
    try:
        num_rows = sum(batch.num_rows for batch in open_checked(path).iter_batches(ROWS_AT_ONCE))
        problem = _books(record, num_rows, plan.num_rows)
        counted = audit.problem(path, paths.plan, plan.sources)
        statuses = audit.count_by_status()
    except (DamageError, OSError, pa.ArrowException) as error:
        return Finding(what=str(path), problem=str(error).splitlines()[0])
    expected = {str(status): number for status in RowStatus if (number := getattr(record.rows, status))}
    if not (problem or counted) and statuses != expected:
        problem = f"it has {statuses}, the run recorded {expected}"
    problems = "; ".join(each for each in (problem, counted) if each)
    return Finding(what=f"{path} ({num_rows:,} rows)", problem=problems or None)


def _books(record: RunRecord, num_rows: int, num_planned: int) -> str | None:
    """Whether a run's own counts and an output's length agree with the plan."""
    rows = record.rows
    if rows.total != num_planned or not rows.is_balanced:
        return (
            f"run {record.run_id} recorded {rows.total:,} rows, planned were {num_planned:,}, and its statuses "
            f"make {rows.ok + rows.failed + rows.skipped + rows.pending:,}"
        )
    return None if num_rows == num_planned else f"it has {num_rows:,} rows, planned were {num_planned:,}"
