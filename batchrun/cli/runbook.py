"""`batchrun runbook`: the runbook's blocks, from the file that is installed beside the code."""

import re
from pathlib import Path

import click

from batchrun.errors import UsageError


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


def path() -> Path:
    """In an installed package beside the code, in a checkout in `docs/`."""
    package = Path(__file__).parent.parent
    installed = package / "runbook.md"
    return installed if installed.exists() else package.parent / "docs" / "runbook.md"


def blocks(text: str) -> dict[str, str]:
    """Each block by its anchor, in the file's order."""
    pieces = re.split(r"^### (.+)$", text, flags=re.MULTILINE)
    bodies = (re.split(r"^# ", body, flags=re.MULTILINE)[0].strip() for body in pieces[2::2])
    return dict(zip(pieces[1::2], bodies, strict=True))
