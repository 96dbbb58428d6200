"""`batchrun report`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchrun.cli import options
from batchrun.cli.outcome import echo_json
from batchrun.errors import OutputError, UsageError

if TYPE_CHECKING:
    from batchrun.insight.facts import RunFacts
    from batchrun.insight.report import Report


@click.command(short_help="a run on one page, and what held it up")
@click.argument("job_or_run_id", metavar="ID")
@click.option("--output", "-o", metavar="FILE", help="The page; default: report-<run id>.html here.")
@options.price
@click.option("--diagnose", is_flag=True, help="Say what held the run up, each with what to change; no page.")
@options.home
@options.as_json
def command(
    job_or_run_id: str,
    output: str | None,
    price: float | None,
    diagnose: bool,
    home: str | None,
    as_json: bool,
) -> None:
    """Write a page about the newest run of a job that computed something, or about one run, while it runs or
    after: one HTML file that needs nothing beside it. With --json the same figures are one object, and a page is
    written only with -o.

    \b
    Examples:
      batchrun report summarize-1f2e3d4c --price 2.50
      batchrun report 20261130T220000-1a2b3c -o night.html
      batchrun report summarize-1f2e3d4c --json
      batchrun report summarize-1f2e3d4c --diagnose
    """
    from batchrun.insight.facts import run_that_computed
    from batchrun.insight.report import plain, report_of
    from batchrun.storage import storage_errors

    if diagnose and (output is not None or price is not None):
        raise UsageError(
            "--diagnose writes no page and tells no cost", "Give it alone, or take away --output and --price."
        )
    space = options.workspace(home)
    facts = run_that_computed(space, job_or_run_id, may_go_on=True)
    if diagnose:
        _diagnose(facts, as_json=as_json)
        return
    with storage_errors(space.home):
        report = report_of(facts, price)
    target = None
    if output or not as_json:
        target = Path(output or f"report-{report.record.run_id}.html").absolute()
        _write(target, report)
    if as_json:
        echo_json(plain(report) | {"page": None if target is None else str(target)})
    else:
        click.echo(target)


def _diagnose(facts: "RunFacts", *, as_json: bool) -> None:
    from batchrun.cli.diagnosis_text import render
    from batchrun.insight.evidence import read_evidence
    from batchrun.insight.told import diagnosis_plain
    from batchrun.storage import storage_errors

    with storage_errors(facts.workspace.home):
        evidence = read_evidence(facts)
    if as_json:
        echo_json(diagnosis_plain(evidence))
    else:
        click.echo(render(evidence))


def _write(target: Path, report: "Report") -> None:
    from batchrun import atomic_file
    from batchrun.insight.page import GENERATOR, render

    if not target.parent.is_dir():
        raise OutputError(f"the folder {target.parent} is not there", "Make it, or give another -o.")
    if target.exists() and not _is_page(target, GENERATOR):
        raise OutputError(
            f"{target} exists and is not a page of {GENERATOR}; it is not overwritten", "Give another -o."
        )
    try:
        atomic_file.write_bytes(target, render(report).encode(), f"report-{os.getpid()}")
    except OSError as error:
        raise OutputError(f"{target} can not be written: {error.strerror}", "Give another -o.") from error


def _is_page(path: Path, generator: str) -> bool:
    """Whether it is one that this command wrote."""
    try:
        with path.open("rb") as file:
            return f'content="{generator} '.encode() in file.read(1024)
    except OSError:
        return False
