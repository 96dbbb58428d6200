"""`batchrun status`. Reads run records alone; believes a lock, not a record."""

from typing import Any

import click
import msgspec

from batchrun.cli import options
from batchrun.cli.ending import resume_command
from batchrun.cli.outcome import echo_json
from batchrun.clock import duration, local_time, seconds_since, since
from batchrun.holding import how_far, percent_done
from batchrun.run_record import RunRecord, RunState
from batchrun.selection import damaged_runs, standing_runs


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
    for path in damaged_runs(space, job_id):
        click.echo(
            f"batchrun: run record {path} is damaged; the next run of its corpus sets it aside", err=True
        )
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
    return plain | {"percent_done": percent_done(record)}


def _table(runs: list[RunRecord]) -> str:
    rows = [("JOB", "STATE", "DONE", "LEFT", "STARTED", "CORPUS")]
    rows += [
        (
            record.job_id,
            record.state,
            _done(record),
            _left(record),
            local_time(record.started_at),
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
    return f"{record.rows.computed:,} of {record.to_run:,} ({int(percent_done(record))}%)"


def _left(record: RunRecord) -> str:
    seconds = record.metrics.seconds_to_completion
    return duration(seconds) if record.state is RunState.RUNNING and seconds is not None else "-"


def _state(record: RunRecord) -> str:
    if record.state is RunState.RUNNING:
        return (
            f"running (process {record.pid} on {record.host}), {since(record.started_at)}: {how_far(record)}"
        )
    return record.told_state


def _window(record: RunRecord) -> str:
    if record.window_ends_at is None:
        return "-"
    ends, slack = f"ends {local_time(record.window_ends_at)}", record.metrics.slack_seconds
    if record.state is not RunState.RUNNING or slack is None:
        return ends
    return (
        f"{ends}, with {duration(slack)} to spare" if slack >= 0 else f"{ends}, {duration(-slack)} too early"
    )


def _in_full(record: RunRecord) -> str:
    rows, metrics = record.rows, record.metrics
    facts = {
        "job": f"{record.job_id}, seed {record.seed}, run {record.run_id}",
        "state": _state(record),
        "release": record.release or "-",
        "corpus": f"{', '.join(record.corpus)} (id {record.corpus_id})",
        "shard": f"{record.shard} of corpus {record.whole_id}" if record.shard else "-",
        "output": record.output or "-",
        "engine": record.engine or "-",
        "rows": f"{rows.total:,}: {rows.ok:,} ok, {rows.failed:,} failed, {rows.skipped:,} skipped, {rows.reused:,} "
        f"reused, {rows.duplicate:,} duplicate",
        "this run": f"{rows.computed:,} of {record.to_run:,} documents computed ({int(percent_done(record))}%)",
        "tokens": f"{record.tokens.input:,} read, {record.tokens.output:,} written",
        "rates": f"{metrics.prefill_tokens_per_second:,.0f} prefill and {metrics.decode_tokens_per_second:,.0f} decode tokens/s",
        "time": f"{duration(record.seconds.total)} (planning {duration(record.seconds.planning)}, loading "
        f"{duration(record.seconds.loading)}, running {duration(record.seconds.running)})",
        "predicted": "-" if record.estimated_seconds is None else duration(record.estimated_seconds),
        "ceiling": "-"
        if metrics.ceiling_share is None
        else f"{metrics.ceiling_share:.0%} of the engine's profile",
        "left": _left(record),
        "window": _window(record),
        "updated": f"{local_time(record.updated_at)}, {duration(seconds_since(record.updated_at))} ago",
    }
    next_step = {
        RunState.INTERRUPTED: resume_command(record),
        RunState.FAILED: "see the state; then submit again",
    }
    if record.state in next_step:
        facts["next"] = next_step[record.state]
    return "\n".join(f"{name + ':':<10} {value}" for name, value in facts.items() if value != "-")
