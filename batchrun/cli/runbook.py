"""`batchrun runbook`."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

import click

from batchrun.cli.layout import columns, wrapped
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
        click.echo("\n".join([str(path()), *_listed(found)]))
        return
    named = _named(anchor)
    if named not in found:
        raise UsageError(f"the runbook has no block {anchor!r}", _hint(named, found))
    click.echo("\n".join([named, "", *_shown(found[named])]))


def _named(given: str) -> str:
    """In any case, as an anchor, as a metric's whole name, or as a code alone."""
    named = given.lower().lstrip("#").removeprefix("batchrun_")
    return f"exit-{named}" if named.isdecimal() else named


def _hint(named: str, found: Mapping[str, str]) -> str:
    near = [name for name in found if named and named in name] or get_close_matches(named, found, n=3)
    meant = f"Is it {' or '.join(near[:3])}? " if near else ""
    return f"{meant}List them: batchrun runbook"


def _listed(found: Mapping[str, str]) -> Iterator[str]:
    """Each with what it means: the first lines of its block."""
    width = max(map(len, found)) + 2
    is_narrow = columns() < 2 * width
    for name, block in found.items():
        meaning = block.split("\n\n")[0].replace("\n", " ")
        if is_narrow:
            yield name
            yield from wrapped(meaning, "  ")
        else:
            yield from wrapped(meaning, name.ljust(width))


def _shown(block: str) -> Iterator[str]:
    """As wide as the terminal."""
    for number, paragraph in enumerate(block.split("\n\n")):
        if number:
            yield ""
        for item in re.split(r"\n(?=- )", paragraph):
            yield from wrapped(" ".join(item.split()), rest="  " if item.startswith("- ") else "")
