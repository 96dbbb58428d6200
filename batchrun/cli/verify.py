"""`batchrun verify`."""

import click
import msgspec

from batchrun.cli import options
from batchrun.cli.outcome import echo_json
from batchrun.errors import ExitCode


@click.command(short_help="read every file of a job and check every promise")
@click.argument("job_id")
@options.home
@options.as_json
@options.quiet
def command(job_id: str, home: str | None, as_json: bool, quiet: bool) -> int:
    """Read every segment, plan, spool and output of JOB_ID. Exit 0: all as promised; 75: damage found,
    which the next submit sets aside and computes again.

    \b
    Example:
      batchrun verify summarize-1f2e3d4c
    """
    from batchrun.verification import verify_job

    space = options.workspace(home)
    findings = list(verify_job(space, space.find_job(job_id)))
    problems = [finding for finding in findings if finding.problem]
    for finding in findings:
        if finding.problem:
            click.echo(f"DAMAGED  {finding.what}: {finding.problem}", err=True)
        elif not quiet:
            click.echo(f"ok       {finding.what}", err=True)
    code = ExitCode.INTERRUPTED if problems else ExitCode.COMPLETE
    if as_json:
        echo_json({"files": len(findings), "damaged": msgspec.to_builtins(problems), "exit_code": int(code)})
    elif problems:
        click.echo("batchrun: submit the corpus again: damaged rows are computed again", err=True)
    return code
