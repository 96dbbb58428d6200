"""`batchrun status`. Reads run records alone; believes a lock, not a record."""

from typing import Any

import click
import msgspec

from batchrun.cli import options
from batchrun.cli.console import duration
from batchrun.cli.ending import resume_command
from batchrun.cli.outcome import echo_json
from batchrun.records import RunRecord, RunState
from batchrun.selection import standing_runs


@click.command(short_help="jobs, while they run or after")
@click.argument("job_id", required=False)
@options.home
@options.as_json
def command(job_id: str | None, home: str | None, as_json: bool) -> None:
    """Show the jobs of the workspace, or JOB_ID in full.

    \b
    Example:
      batchrun status summarize-1f2e3d4c --json
    """
    space = options.workspace(home)
    runs = standing_runs(space, job_id)
    if as_json:
        echo_json([_plain(record) for record in runs])
    elif not runs:
        click.echo(f"no runs in {space.checkpoints}\nstart one: batchrun submit corpus.parquet")
    elif job_id:
        click.echo("\n\n".join(_in_full(record) for record in runs))
    else:
        click.echo(_table(runs))


def _plain(record: RunRecord) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(record)
    return plain


def _table(runs: list[RunRecord]) -> str:
    rows = [("JOB", "STATE", "DONE", "LEFT", "STARTED", "CORPUS")]
    rows += [
        (
            record.job_id,
            record.state,
            _done(record),
            _left(record),
            record.started_at[:16].replace("T", " "),
            record.corpus[0] + (f" shard {record.shard}" if record.shard else ""),
        )
        for record in runs
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[5]])
        for row in rows
    )


def _done(record: RunRecord) -> str:
    if record.state is RunState.COMPLETE:
        return f"{record.rows.ok:,} ok, {record.rows.failed:,} failed"
    return f"{record.rows.computed:,} of {record.to_run:,}"


def _left(record: RunRecord) -> str:
    seconds = record.metrics.seconds_to_completion
    return duration(seconds) if record.state is RunState.RUNNING and seconds is not None else "-"


def _in_full(record: RunRecord) -> str:
    rows, metrics = record.rows, record.metrics
    facts = {
        "job": f"{record.job_id}, seed {record.seed}, run {record.run_id}",
        "state": record.state + (f" ({record.stop_reason})" if record.stop_reason else ""),
        "corpus": f"{', '.join(record.corpus)} (id {record.corpus_id})",
        "shard": f"{record.shard} of corpus {record.whole_id}" if record.shard else "-",
        "output": record.output or "-",
        "engine": record.engine or "-",
        "rows": f"{rows.total:,}: {rows.ok:,} ok, {rows.failed:,} failed, {rows.skipped:,} skipped, {rows.reused:,} "
        f"reused, {rows.duplicate:,} duplicate",
        "this run": f"{rows.computed:,} of {record.to_run:,} documents computed",
        "tokens": f"{record.tokens.input:,} read, {record.tokens.output:,} written",
        "rates": f"{metrics.prefill_tokens_per_second:,.0f} prefill and {metrics.decode_tokens_per_second:,.0f} decode tokens/s",
        "time": f"{duration(record.seconds.total)} (planning {duration(record.seconds.planning)}, loading "
        f"{duration(record.seconds.loading)}, running {duration(record.seconds.running)})",
        "predicted": "-" if record.estimated_seconds is None else duration(record.estimated_seconds),
        "ceiling": "-"
        if metrics.ceiling_share is None
        else f"{metrics.ceiling_share:.0%} of the engine's profile",
        "left": _left(record),
        "updated": record.updated_at,
    }
    next_step = {
        RunState.INTERRUPTED: resume_command(record),
        RunState.FAILED: "see the state; then submit again",
    }
    if record.state in next_step:
        facts["next"] = next_step[record.state]
    return "\n".join(f"{name + ':':<10} {value}" for name, value in facts.items())
