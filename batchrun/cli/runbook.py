"""`batchrun runbook`."""

import click

from batchrun.errors import UsageError
from batchrun.insight.runbook import blocks, path


@click.command(short_help="what to do about an exit code or a metric")
@click.argument("anchor", required=False)
def command(anchor: str | None) -> None:
    """Print the block of an exit code or a batch metric: its threshold, the action, how to see that it worked, and when
    to roll back. Without ANCHOR list them, and where the file is.

    \b
    Examples:
      batchrun runbook exit-75
      batchrun runbook kv_cache_usage
    """
    found = blocks(path().read_text(encoding="utf-8"))
    if anchor is None:
        click.echo("\n".join([str(path()), *found]))
        return
    named = anchor.lstrip("#").removeprefix("batchrun_")
    named = f"exit-{named}" if named.isdecimal() else named
    if named not in found:
        raise UsageError(f"the runbook has no block {anchor!r}", "List them: batchrun runbook")
    click.echo(f"{named}\n\n{found[named]}")
