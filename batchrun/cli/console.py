"""What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere. All on stderr."""

import json
import os
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from batchrun.clock import duration
from batchrun.errors import BatchrunError, ExitCode
from batchrun.holding import percent_done
from batchrun.reporter import Reporter
from batchrun.run_record import RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable

LINE_SECONDS = 30.0
WIDE, LEAST_BAR = 80, 8
"""Columns of a terminal that does not say how many it has, and of a bar that still shows something."""


def show_error(error: BatchrunError, log_format: str = "text") -> None:
    """What happened, and what to do next."""
    if log_format == "json":
        said = {"message": error.reason, "hint": error.hint, "exit_code": int(error.exit_code)}
        say_json(**said, runbook=runbook_command(error.exit_code))
        return
    with suppress(OSError):  # nobody reads it
        _show(error)


def runbook_command(code: int) -> str:
    """What prints what to do about an exit code."""
    return f"batchrun runbook exit-{int(code)}"


def styled(text: str, **style: Any) -> str:
    """With colours, unless NO_COLOR is set; click takes them away where there is no terminal."""
    return text if os.environ.get("NO_COLOR") else click.style(text, **style)


def say(text: str, log_format: str) -> None:
    """A line of the log."""
    if log_format == "json":
        say_json(message=text)
        return
    with suppress(OSError):  # nobody reads it
        click.echo(f"batchrun: {text}", err=True)


def say_json(**fields: Any) -> None:
    """A line of the log as an object, with its time."""
    moment = datetime.now(UTC).isoformat(timespec="milliseconds")
    with suppress(OSError):
        click.echo(json.dumps({"time": moment} | fields, ensure_ascii=False), err=True)


def _show(error: BatchrunError) -> None:
    is_end = error.exit_code in (ExitCode.INTERRUPTED, ExitCode.WINDOW_OVER)
    prefix = "stopped" if is_end else "error"
    click.echo(f"batchrun: {prefix}: {error.reason}", err=True)
    click.echo(f"  → {error.hint}", err=True)
    if error.exit_code != ExitCode.USAGE:
        click.echo(f"  runbook: {runbook_command(error.exit_code)}", err=True)


def console(*, quiet: bool, log_format: str = "text") -> Reporter:
    """The reporter for this terminal, or for none; or lines of JSON wherever they go."""
    if quiet:
        return Reporter()
    if log_format == "json":
        return JsonReporter()
    return TerminalReporter() if sys.stderr.isatty() else LineReporter()


class LineReporter(Reporter):
    """A line at most every LINE_SECONDS, without control characters. Nobody need read them."""

    def __init__(self, clock: "Callable[[], float]" = time.monotonic) -> None:
        self._clock = clock
        self._said = clock()

    def note(self, text: str) -> None:
        with suppress(OSError):
            click.echo(f"batchrun: {text}", err=True)

    def planning(self, num_rows: int) -> None:
        if self._is_due():
            self.note(f"planning: {num_rows:,} rows read")

    def running(self, record: RunRecord) -> None:
        if self._is_due():
            self.note(progress_text(record))

    def _is_due(self) -> bool:
        if self._clock() - self._said < LINE_SECONDS:
            return False
        self._said = self._clock()
        return True


class JsonReporter(LineReporter):
    """Each line an object: `time`, `message`, and while it runs `percent_done`, `seconds_remaining`, `rows_failed`."""

    def note(self, text: str) -> None:
        say_json(message=text)

    def running(self, record: RunRecord) -> None:
        if self._is_due():
            say_json(
                message=progress_text(record),
                job_id=record.job_id,
                run_id=record.run_id,
                percent_done=percent_done(record),
                seconds_remaining=record.metrics.seconds_to_completion,
                rows_failed=record.rows.failed,
            )


class TerminalReporter(Reporter):
    """A line that is drawn anew: for planning, for loading, which both go when they are over, and a tqdm bar for
    running, which stays.
    """

    def __init__(self) -> None:
        self._bar: Any = None
        self._phase = ""

    def note(self, text: str) -> None:
        if self._bar is None:
            click.echo(f"batchrun: {text}", err=True)
        else:
            self._bar.write(f"batchrun: {text}", file=sys.stderr)

    def planning(self, num_rows: int) -> None:
        self._draw("planning", f"planning: {num_rows:,} rows read [{{elapsed}}]", done=num_rows)

    def running(self, record: RunRecord) -> None:
        if record.engine is None:
            self._draw("loading", "loading the model [{elapsed}]", done=self._bar.n + 1 if self._bar else 0)
            return
        self._draw("running", bar_text(record, _columns()), done=record.rows.computed, total=record.to_run)
        self._bar.refresh()

    def finished(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
            self._phase = ""

    def _draw(self, phase: str, shape: str, *, done: int, total: int | None = None) -> None:
        """Within a tenth of a second of the last time it is only noted."""
        if self._phase != phase:
            from tqdm import tqdm

            self.finished()
            self._bar = tqdm(
                total=total, file=sys.stderr, bar_format=shape, dynamic_ncols=True, leave=total is not None
            )
            self._phase = phase
        self._bar.bar_format = shape
        self._bar.update(done - self._bar.n)


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or WIDE
    except OSError:
        return WIDE


def bar_text(record: RunRecord, columns: int) -> str:
    """The format, for tqdm, of a bar of LEAST_BAR or more, and of what fits beside it, the most important first."""
    rows, metrics = record.rows, record.metrics
    text = f"{rows.computed:,} of {record.to_run:,}"
    left, is_done = metrics.seconds_to_completion, rows.computed >= record.to_run
    parts = [] if left is None or is_done else [f"{duration(left)} left"]
    parts += [f"{rows.failed:,} failed"] if rows.failed else []
    rates = f"{metrics.prefill_tokens_per_second:,.0f} in, {metrics.decode_tokens_per_second:,.0f} out"
    room = columns - len("100%|| ") - LEAST_BAR
    for part in (*parts, f"{rates} tokens/s"):
        if len(text) + len(part) + 2 <= room:
            text += f", {part}"
    return f"{int(percent_done(record)):3d}%|{{bar}}| {text}"


def progress_text(record: RunRecord) -> str:
    """A run under way in one line."""
    rows, metrics, left = record.rows, record.metrics, record.metrics.seconds_to_completion
    if record.engine is None:
        return f"loading the model for {duration(record.seconds.loading)} by now"
    rates = f"{metrics.prefill_tokens_per_second:,.0f} prefill and {metrics.decode_tokens_per_second:,.0f} decode tokens/s"
    told = f"{rows.computed:,} of {record.to_run:,} documents ({int(percent_done(record))}%), {rows.failed:,} failed, {rates}"
    return told if left is None or rows.computed >= record.to_run else f"{told}, about {duration(left)} left"
