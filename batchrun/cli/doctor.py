"""`batchrun doctor`."""

import click

from batchrun.cli import options
from batchrun.cli.outcome import echo_json
from batchrun.defaults import spec_path
from batchrun.errors import ExitCode


@click.command(short_help="what is installed here, and what would run")
@click.option(
    "--job", "job_path", metavar="SPEC", help="The job spec; default: jobs/summarize.toml of the workspace."
)
@options.home
@options.as_json
def command(job_path: str | None, home: str | None, as_json: bool) -> int:
    """Say what is installed, which engine would run, on what device and in which dtype, whether the
    model is there, and how much disk is free. Loads no model. Exit 69 where no engine would run.

    \b
    Example:
      batchrun doctor
    """
    from batchrun.diagnosis import examine

    space = options.workspace(home)
    checks = examine(space, spec_path(space, job_path))
    if as_json:
        echo_json({check.name: {"value": check.value, "hint": check.hint} for check in checks})
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            click.echo(f"{check.name:<{width}}  {check.value}")
            if check.hint:
                click.echo(f"{'':<{width}}  → {check.hint}")
    failed = next((check.exit_code for check in checks if check.exit_code), ExitCode.COMPLETE)
    return int(failed)
