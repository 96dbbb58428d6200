"""`batchrun capacity`."""

from dataclasses import fields
from typing import TYPE_CHECKING

import click
import msgspec
from click.core import ParameterSource

from batchrun.cli import options
from batchrun.cli.capacity_page import render
from batchrun.cli.console import console
from batchrun.cli.outcome import echo_json, finish_with_error
from batchrun.corpus.files import STDIN
from batchrun.errors import BatchrunError, UsageError

if TYPE_CHECKING:
    from batchrun.insight.capacity import Found, Question
    from batchrun.reporter import Reporter


@click.command(short_help="what a night holds: hours, replicas, limits, what is too much")
@click.argument("given", nargs=-1, required=True, metavar="JOB_ID|RUN_ID|CORPUS...")
@options.job_spec
@options.corpus
@options.window_end
@click.option("--replicas", type=click.IntRange(1, 1024), metavar="N", help="Replicas at work, a shard each.")
@options.home
@options.as_json
@options.quiet
def command(
    given: tuple[str, ...],
    job: options.JobChoice,
    columns: options.CorpusChoice,
    deadline: str | None,
    time_budget: str | None,
    replicas: int | None,
    home: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Say what a run was for the machine, or what a corpus will be: tokens in windows of five minutes, hours on one
    replica, replicas for a deadline and with one lost, what limits of length and twice the load change, the KV cache's
    peak; and where it is too much for the window, how much fits. A run is named by its id or its job's; a corpus is
    planned where it is new. Loads no model.

    \b
    Examples:
      batchrun capacity summarize
      batchrun capacity corpus.parquet --time-budget 8h
    """
    try:
        from batchrun.insight.capacity import capacity

        asked = _question(deadline, time_budget, replicas)
        reporter = console(quiet=quiet)
        if _is_run(given, job.job):
            _require_no_corpus_options()
            found = _run(given[0], home, reporter)
        else:
            found = _corpus(given, job, columns, home, reporter)
        answer = capacity(found, asked)
    except (BatchrunError, OSError) as error:
        raise finish_with_error(error, as_json=as_json) from None
    if as_json:
        echo_json(msgspec.to_builtins(answer))
    else:
        click.echo(render(answer))


def _question(deadline: str | None, time_budget: str | None, replicas: int | None) -> "Question":
    from batchrun.insight.capacity import Question
    from batchrun.window import window_to_plan

    window = window_to_plan(deadline, time_budget)
    if not window.is_bounded:
        return Question(replicas=replicas)
    return Question(window_seconds=window.seconds_left(), ends=window.text, replicas=replicas)


def _is_run(given: tuple[str, ...], job_path: str | None) -> bool:
    """One word that is no path, no pattern and no standard input."""
    word = given[0]
    return len(given) == 1 and job_path is None and word != STDIN and not options.is_path(word)


def _require_no_corpus_options() -> None:
    context = click.get_current_context()
    of_corpus = {
        field.name for record in (options.JobChoice, options.CorpusChoice) for field in fields(record)
    }
    wrong = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in of_corpus
        and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]
    if wrong:
        raise UsageError(
            f"{', '.join(wrong)}: only a corpus takes that, and a run is what it was",
            "Leave it out, or give the corpus: batchrun capacity CORPUS.",
        )


def _run(given: str, home: str | None, reporter: "Reporter") -> "Found":
    from batchrun.insight.facts import run_that_computed
    from batchrun.insight.grounds import grounds_of_run

    return grounds_of_run(run_that_computed(options.workspace(home), given), reporter.note)


def _corpus(
    given: tuple[str, ...],
    job: options.JobChoice,
    columns: options.CorpusChoice,
    home: str | None,
    reporter: "Reporter",
) -> "Found":
    from batchrun.insight.grounds import grounds_of_corpus

    opened = job.open(home)
    return grounds_of_corpus(opened, columns.find(opened, given), reporter)
