"""`batchrun gc`."""

from datetime import timedelta
from typing import TYPE_CHECKING

import click
import msgspec

from batchrun.cli import options
from batchrun.cli.outcome import echo_json
from batchrun.errors import ExitCode

if TYPE_CHECKING:
    from batchrun.collection import Collection, Item

DEFAULT_DAYS = 30


@click.command(short_help="take away what no recent run needs any more")
@click.argument("job_id", required=False)
@click.option(
    "--older-than",
    "days",
    type=click.IntRange(min=1, max=36_500),
    default=DEFAULT_DAYS,
    show_default=True,
    metavar="DAYS",
    help="What was not used for so long goes.",
)
@click.option("--yes", is_flag=True, help="Do it; without it nothing is taken away.")
@options.home
@options.as_json
@options.quiet
def command(job_id: str | None, days: int, yes: bool, home: str | None, as_json: bool, quiet: bool) -> int:
    """List what no run of the last days needs, of all jobs or of JOB_ID, with its size; with --yes take it away:
    plans of corpora that were not used, with their spools; spools of completed plans without a failed row;
    damaged segments set aside; telemetry as old; and summaries of documents that stand in no plan that is left. They are
    computed again should their text come back.

    Run records and job.json stay. Nothing of a corpus that a run holds is touched, nor are the summaries of its
    job. While --yes is at work on a job, a run of it that would begin ends with 11.

    Exit 0: done, or nothing to do; 11: nothing could be taken away, since runs hold what there is.

    \b
    Examples:
      batchrun gc
      batchrun gc summarize-1f2e3d4c --older-than 90 --yes
    """
    from batchrun.collection import collect, survey

    space = options.workspace(home)
    job_ids = [space.find_job(job_id)] if job_id else space.job_ids()
    age = timedelta(days=days)
    show = not (as_json or (quiet and yes))
    if yes:
        found = collect(space, job_ids, age, lambda item: _show(item) if show else None)
    else:
        found = survey(space, job_ids, age)
        for item in found.items if show else ():
            _show(item)
    code = ExitCode.LOCKED if yes and found.is_barred else ExitCode.COMPLETE
    if not (quiet and code == ExitCode.COMPLETE):
        _tell(found, done=yes)
    if as_json:
        plain = msgspec.to_builtins(found, enc_hook=str)
        echo_json(
            {"done": yes, "older_than_days": days, "num_bytes": found.num_bytes}
            | plain
            | {"exit_code": int(code)}
        )
    return int(code)


def _show(item: "Item") -> None:
    click.echo(f"{size(item.num_bytes):>10}  {item.kind:<8} {item.path} ({item.why})")


def _tell(found: "Collection", *, done: bool) -> None:
    for left in found.left:
        click.echo(f"batchrun: left alone: {left.path}: {left.why}", err=True)
    if done:
        text = f"{size(found.num_bytes)} taken away"
    elif found.items:
        text = f"{size(found.num_bytes)} would be taken away; do it: the same with --yes"
    else:
        text = "nothing to take away"
    click.echo(f"batchrun: {text}", err=True)


def size(num_bytes: int) -> str:
    """`512 B`, `1.5 KiB`, `2.0 GiB`."""
    value, units = float(num_bytes), ["B", "KiB", "MiB", "GiB"]
    while value >= 1024 and len(units) > 1:  # noqa: PLR2004
        value /= 1024
        units.pop(0)
    return f"{value:.0f} B" if units[0] == "B" else f"{value:,.1f} {units[0]}"
