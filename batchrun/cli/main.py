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
from batchrun.cli.console import runbook_command, say, say_json, show_error
from batchrun.cli.manner import Manner, manner_of
from batchrun.cli.outcome import Finished, blank_summary, conclude, failure_summary, summary
from batchrun.errors import BatchrunError, ExitCode, StorageError, UsageError
from batchrun.run_record import RunRecord, RunState
from batchrun.signals import answered, end_with_parent

COMMANDS = {
    "submit": "start or continue the summaries of a corpus",
    "plan": "what submit would do, and why",
    "resume": "continue a job from its spool, without the corpus",
    "status": "jobs, while they run or after",
    "results": "publish what there is, now; list failures",
    "report": "a run on one page, and what held it up",
    "verify": "read every file of a job and check every promise",
    "compare": "two runs or two benches: what differs by more than noise",
    "calibrate": "measure the engine here, for estimates and for the spec",
    "bench": "measure lengths and concurrency, for capacity planning",
    "capacity": "what a night holds: hours, replicas, limits, what is too much",
    "runbook": "what to do about an exit code or a metric",
    "gc": "take away what no recent run needs any more",
    "init": "make a workspace with starter specs",
    "doctor": "what is installed here, and what would run",
}


class _TerminatedError(BaseException):
    """A signal outside a run, which answers signals itself."""


class Commands(click.Group):
    """Imports a command when it is called, so that `--help` and `status` load nothing heavy."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"batchrun.cli.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Click itself would print an empty line, which is no line of a log, and go on with another error."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _TerminatedError(signal.SIGINT.name) from None

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

    Exit codes: 0 complete · 2 usage · 3 too many failed rows, or a --fail-if of compare holds · 4 the window is
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


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    for another in answered():  # while the end is told
        if another is not signal.SIGINT:
            signal.signal(another, signal.SIG_IGN)
    raise _TerminatedError(signal.Signals(number).name)


def code_of(arguments: list[str]) -> int:
    """Run a command; returns its exit code, whatever ended it."""
    manner = Manner()
    if threading.current_thread() is not threading.main_thread():
        return _code_of(arguments, manner_of(main, arguments))
    terminating = [number for number in answered() if number is not signal.SIGINT]
    before = {number: signal.signal(number, _terminate) for number in terminating}
    try:
        end_with_parent()
        manner = manner_of(main, arguments)
        return _code_of(arguments, manner)
    except _TerminatedError as stopped:
        return _interrupted(str(stopped), manner)
    except KeyboardInterrupt:
        return _interrupted(signal.SIGINT.name, manner)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _code_of(arguments: list[str], manner: Manner) -> int:
    try:
        returned: Any = main.main(arguments, prog_name="batchrun", standalone_mode=False)
    except Finished as finished:
        return finished.exit_code
    except BatchrunError as error:
        return _failed(error, manner)
    except click.Abort:
        return _interrupted(signal.SIGINT.name, manner)
    except click.ClickException as error:
        return _misused(error, manner)
    except OSError as error:
        mended = StorageError(f"reading or writing failed: {error}", "Mend it, and call the command again.")
        return _failed(mended, manner)
    except Exception as error:  # noqa: BLE001 - the one boundary
        return _broken(error, manner)
    return returned if isinstance(returned, int) else ExitCode.COMPLETE


def _failed(error: BatchrunError, manner: Manner) -> int:
    show_error(error, manner.log_format)
    conclude(manner, failure_summary(error))
    return error.exit_code


def _misused(error: click.ClickException, manner: Manner) -> int:
    """A command line that click does not take."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    said = UsageError(
        error.format_message(), f"See {context.command_path if context else 'batchrun'} --help."
    )
    if manner.log_format == "json":
        show_error(said, "json")
    else:
        with suppress(OSError):
            error.show()
    conclude(manner, failure_summary(said))
    return said.exit_code


def _interrupted(name: str, manner: Manner) -> int:
    """A signal, where no run answers it."""
    code = ExitCode.KEYBOARD if name == signal.SIGINT.name else ExitCode.INTERRUPTED
    say(f"stopped ({name}): nothing was begun, or all that was is kept", manner.log_format)
    say(f"runbook: {runbook_command(code)}", manner.log_format)
    conclude(manner, blank_summary(RunState.INTERRUPTED, name, code))
    return code


def _broken(error: Exception, manner: Manner) -> int:
    """A bug; where a run came to it, its record is told."""
    hint = "this is a bug; please report it with the text above"
    trace = "".join(traceback.format_exception(error))
    if manner.log_format == "json":
        said = {"message": repr(error), "hint": hint, "exit_code": int(ExitCode.BUG), "traceback": trace}
        say_json(**said, runbook=runbook_command(ExitCode.BUG))
    else:
        with suppress(OSError):  # nobody reads it
            click.echo(trace, err=True, nl=False)
        say(hint, "text")
        say(f"runbook: {runbook_command(ExitCode.BUG)}", "text")
    record = getattr(error, "record", None)
    blank = blank_summary(RunState.FAILED, repr(error), ExitCode.BUG)
    conclude(manner, summary(record) if isinstance(record, RunRecord) else blank)
    return ExitCode.BUG
