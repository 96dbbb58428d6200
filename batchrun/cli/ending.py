"""The last words of a run."""

from contextlib import suppress

import click

from batchrun.cli.console import runbook_command, say
from batchrun.cli.outcome import echo_json, summary, write_summary
from batchrun.clock import duration
from batchrun.errors import ExitCode
from batchrun.run_record import RunRecord, RunState


def tell_end(
    record: RunRecord,
    *,
    as_json: bool,
    quiet: bool,
    summary_file: str | None = None,
    log_format: str = "text",
) -> int:
    """Say how a run ended; returns the exit code."""
    code = record.exit_code or 0
    if not (quiet and code == ExitCode.COMPLETE):
        for line in end_lines(record):
            say(line, log_format)
        if code != ExitCode.COMPLETE:
            say(f"runbook: {runbook_command(code)}", log_format)
    write_summary(summary_file, summary(record), log_format)
    is_published = record.output and (record.state is RunState.COMPLETE or code == ExitCode.WINDOW_OVER)
    with suppress(OSError):  # nobody reads it
        if as_json:
            echo_json(summary(record))
        elif is_published and not quiet:
            click.echo(record.output)
    return code


def end_lines(record: RunRecord) -> list[str]:
    """How it ended, what it was, and what to do next."""
    rows, tokens = record.rows, record.tokens
    if record.exit_code == ExitCode.WINDOW_OVER:
        return [
            f"the window is over ({record.stop_reason}): {rows.computed:,} of {record.to_run:,} documents of this run are "
            f"finished; of {rows.total:,} rows {rows.pending:,} are pending",
            f"go on in the next window: the same submit, or {resume_command(record)}",
        ]
    if record.state is not RunState.COMPLETE:
        kept = f"{rows.computed:,} of {record.to_run:,} documents of this run are finished and kept"
        return [
            f"stopped ({record.stop_reason}): {kept}",
            f"go on: {resume_command(record)}   (or the same submit again)",
        ]
    lines = [
        f"complete: {f'shard {record.shard}, ' if record.shard else ''}{rows.total:,} rows: {rows.ok:,} ok, {rows.failed:,} failed, {rows.skipped:,} skipped",
        f"{rows.computed:,} computed, {rows.reused:,} reused, {rows.duplicate:,} duplicate; {tokens.input:,} tokens read, "
        f"{tokens.output:,} written; {duration(record.seconds.total)}",
    ]
    if record.estimated_seconds is not None and rows.computed:
        lines.append(running_text(record))
    if rows.departed:
        lines[1] += f"; {rows.departed:,} texts of run {record.compared_with} are not in the corpus any more"
    if record.flagged:
        counts = ", ".join(f"{number:,} {flag}" for flag, number in sorted(record.flagged.items()))
        lines.append(f"flagged of those computed: {counts}")
    if rows.failed:
        lines.append(f"list the failures: batchrun results {record.job_id} --only failed")
    if record.shard:
        lines.append(f"join the shards when they are done: batchrun results {record.job_id} -o OUT")
    return lines


def resume_command(record: RunRecord) -> str:
    """What goes on with a run."""
    shard = f" --shard {record.shard}" if record.shard else ""
    return f"batchrun resume {record.job_id}{shard}"


def running_text(record: RunRecord) -> str:
    """What was foretold of the running time, what it was, and the share of the engine's ceiling if known."""
    said = f"predicted {duration(record.estimated_seconds or 0.0)}, took {duration(record.seconds.running)}"
    share = record.metrics.ceiling_share
    return said if share is None else f"{said}: {share:.0%} of what the engine reaches (batchrun calibrate)"
