"""`batchrun`: finds the command, and turns errors and signals into messages and exit codes."""

import gc
import importlib
import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

import click

import batchrun
from batchrun.cli.console import show_error
from batchrun.cli.outcome import Finished
from batchrun.errors import BatchrunError, ExitCode, StorageError
from batchrun.signals import answered, end_with_parent

COMMANDS = {
    "submit": "start or continue the summaries of a corpus",
    "plan": "what submit would do, and why",
    "resume": "continue a job from its spool, without the corpus",
    "status": "jobs, while they run or after",
    "results": "publish what there is, now; list failures",
    "report": "a run on one page: speed, time, cost, rows, documents",
    "verify": "read every file of a job and check every promise",
    "calibrate": "measure the engine here, for estimates and for the spec",
    "gc": "take away what no recent run needs any more",
    "init": "make a workspace with starter specs",
    "doctor": "what is installed here, and what would run",
}


class Commands(click.Group):
    """Imports a command when it is called, so that `--help` and `status` load nothing heavy."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"batchrun.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(batchrun.__version__, message="batchrun %(version)s")
def main() -> None:
    """Summarize a corpus offline with a local model: one row out for every row in, resumable after
    any interruption.

    \b
    Example:
      batchrun submit corpus.parquet

    Exit codes: 0 complete · 2 usage · 3 too many failed rows · 4 the window is
    over · 11 locked by another run · 65 corpus
    unusable · 66 corpus not found · 69 engine can not start · 70 a bug · 73 output can not be written ·
    74 I/O error · 75 interrupted, resumable · 78 job spec wrong · 130 interrupted from the keyboard
    """


GC_THRESHOLDS = (100_000, 50, 100)
"""Of the cyclic collector. Rows make no cycles, and at Python's own thresholds it took half of the time in
which a run of 60,000 rows on the lead engine held the GIL (`py-spy record --gil -- batchrun submit`)."""


def run() -> NoReturn:
    """The entry point: never returns, and never leaves without a number."""
    gc.set_threshold(*GC_THRESHOLDS)
    code = code_of(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (BrokenPipeError, ValueError):
            code = code or ExitCode.COMPLETE
    if threading.active_count() > 1:  # an engine inside a long step can not be joined; all is durable by now
        os._exit(code)
    sys.exit(code)


class _TerminatedError(BaseException):
    """A signal outside a run, which answers signals itself."""


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    for another in answered():  # while the end is told
        if another is not signal.SIGINT:
            signal.signal(another, signal.SIG_IGN)
    raise _TerminatedError(signal.Signals(number).name)


def code_of(arguments: list[str]) -> int:
    """Run a command; returns its exit code, whatever ended it."""
    if threading.current_thread() is not threading.main_thread():
        return _code_of(arguments)
    terminating = [number for number in answered() if number is not signal.SIGINT]
    before = {number: signal.signal(number, _terminate) for number in terminating}
    try:
        end_with_parent()
        return _code_of(arguments)
    except _TerminatedError as stopped:
        with suppress(OSError):
            click.echo(f"batchrun: stopped ({stopped}): nothing was begun, or all that was is kept", err=True)
        return ExitCode.INTERRUPTED
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _code_of(arguments: list[str]) -> int:
    try:
        returned: Any = main.main(arguments, prog_name="batchrun", standalone_mode=False)
    except Finished as finished:
        return finished.exit_code
    except BatchrunError as error:
        show_error(error)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return ExitCode.USAGE
    except (KeyboardInterrupt, click.Abort):
        click.echo("batchrun: interrupted", err=True)
        return ExitCode.KEYBOARD
    except OSError as error:
        show_error(
            StorageError(f"reading or writing failed: {error}", "Mend it, and call the command again.")
        )
        return ExitCode.IO_ERROR
    except Exception:  # noqa: BLE001 - the one boundary
        traceback.print_exc()
        click.echo("batchrun: this is a bug; please report it with the text above", err=True)
        return ExitCode.BUG
    return returned if isinstance(returned, int) else ExitCode.COMPLETE
