"""`batchrun report`."""

import click

from batchrun.cli import options
from batchrun.cli.outcome import echo_json


@click.command(short_help="what a run came to, and what held it up")
@click.argument("job_id")
@click.option("--diagnose", is_flag=True, help="Say what held the run up, each with what to change.")
@options.home
@options.as_json
def command(job_id: str, diagnose: bool, home: str | None, as_json: bool) -> None:
    """Tell of JOB_ID's newest run, or of a run by its id.

    \b
    Example:
      batchrun report summarize --diagnose
    """
    from batchrun.insight.evidence import read_evidence
    from batchrun.insight.facts import find_run
    from batchrun.insight.told import diagnosis_plain, diagnosis_text

    if not diagnose:
        raise click.UsageError("Say what to tell of the run: --diagnose")
    evidence = read_evidence(find_run(options.workspace(home), job_id))
    if as_json:
        echo_json(diagnosis_plain(evidence))
    else:
        click.echo(diagnosis_text(evidence))
