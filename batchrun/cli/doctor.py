"""`batchrun doctor`."""

import sys
from collections.abc import Iterator
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Any

import click
import msgspec

from batchrun.cli import options
from batchrun.cli.console import styled
from batchrun.cli.outcome import echo_json
from batchrun.defaults import spec_path

if TYPE_CHECKING:
    from batchrun.diagnosis import Check, Diagnosis
    from batchrun.holding import Holding

MARKS = {"good": ("✓", "green"), "change": ("!", "yellow"), "fails": ("✗", "red")}


@click.command(short_help="what is installed here, and what would run")
@click.option(
    "--job", "job_path", metavar="SPEC", help="The job spec; default: jobs/summarize.toml of the workspace."
)
@options.home
@options.as_json
def command(job_path: str | None, home: str | None, as_json: bool) -> int:
    """Say what is installed, which engine would run, on what device and in which dtype, whether the models are on
    this machine, who holds locks now and how far they are, how much disk and memory is free, and what to change,
    the most important first. Loads no engine, and downloads nothing.

    Exit 0: a job could run; else the code with which a submit would end: 69 without an engine, 78 where the spec or
    its model is wrong.

    \b
    Example:
      batchrun doctor
    """
    from batchrun.diagnosis import examine

    space = options.workspace(home)
    found = examine(space, spec_path(space, job_path))
    if as_json:
        echo_json(plain(found))
    else:
        click.echo("\n".join(lines(found)))
    return int(found.exit_code)


def plain(found: "Diagnosis") -> dict[str, Any]:
    """The checks by their names; `changes`, the most important first; `locks`; and the exit code."""
    checks: dict[str, Any] = {
        check.name: {"value": check.value, "hint": check.hint, "verdict": check.verdict.value}
        for check in found.checks
    }
    changes = [{"check": check.name, "action": check.hint} for check in found.changes]
    locks = [_plain_lock(lock) for lock in found.locks]
    return checks | {"changes": changes, "locks": locks, "exit_code": int(found.exit_code)}


def _plain_lock(lock: "Holding") -> dict[str, Any]:
    run = lock.record
    far = {} if run is None else {"corpus": run.corpus, "computed": run.rows.computed, "to_run": run.to_run}
    left = None if run is None else run.metrics.seconds_to_completion
    return {
        "job_id": lock.job_id,
        **msgspec.to_builtins(lock.holder),
        **far,
        "seconds_to_completion": left,
    }


def lines(found: "Diagnosis") -> Iterator[str]:
    """As a person reads it: the facts with their marks, then what to change."""
    width = max(len(check.name) for check in found.checks)
    for check in found.checks:
        yield from _lines(check, width)
    yield ""
    if not found.changes:
        yield "Nothing to change. Next: batchrun submit CORPUS"
        return
    yield styled("To change, the most important first:", bold=True)
    for check in found.changes:
        yield _folded(f"{check.name}: {check.hint}", "  → ", "    ")


def _lines(check: "Check", width: int) -> Iterator[str]:
    mark, colour = MARKS[check.verdict]
    head = f"{styled(mark, fg=colour)} {check.name:<{width}}  "
    rest = " " * (width + 4)
    for number, text in enumerate(check.value.split("\n")):
        yield head + _folded(text, rest, rest).strip() if not number else _folded(text, rest, rest)


def _folded(text: str, first: str, rest: str) -> str:
    """To the width of the terminal; without one as it is, so that a line is a fact."""
    if not sys.stdout.isatty():
        return first + text
    return fill(
        text,
        max(40, get_terminal_size().columns),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
