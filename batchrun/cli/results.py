"""`batchrun results`."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchrun.cli import options
from batchrun.cli.outcome import echo_json
from batchrun.errors import UsageError
from batchrun.records import is_permanent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from batchrun.run_record import RowCounts
    from batchrun.snapshot import Snapshot


@click.command(short_help="publish what there is, now; list failures")
@click.argument("job_id")
@click.option("--output", "-o", metavar="OUT", help="Where to write the summaries that there are.")
@click.option(
    "--only", type=click.Choice(["failed"]), help="List the failed rows with their reasons instead."
)
@click.option("--seed", type=int, help="The seed, where the job has runs of several.")
@click.option(
    "--corpus", "corpus_id", metavar="ID", help="The corpus id, where the job has several; see status."
)
@options.home
@options.as_json
def command(
    job_id: str,
    output: str | None,
    only: str | None,
    seed: int | None,
    corpus_id: str | None,
    home: str | None,
    as_json: bool,
) -> None:
    """Publish what JOB_ID has by now, also while it runs: rows without a summary are `pending`.

    The shards of a corpus are joined into one output, a row for each of its rows; lines say which were never
    started, are unfinished, run, or were planned before the corpus changed. Their rows may be `pending`.

    With --only failed each failed row is one line; with --json each is one object, and the last object counts
    them by error_type and says which are permanent: those the next submit leaves alone, while
    batchrun resume JOB_ID --failed computes all of them again that a model was asked for.

    \b
    Examples:
      batchrun results summarize-1f2e3d4c -o so-far.parquet
      batchrun results summarize-1f2e3d4c --only failed
    """
    from batchrun.job import reopen_job
    from batchrun.selection import last_run
    from batchrun.snapshot import failed_rows, publish_now

    if (output is None) == (only is None):
        raise UsageError("results needs -o OUT or --only failed", "See batchrun results --help.")
    space = options.workspace(home)
    full_id = space.find_job(job_id)
    last = last_run(space, full_id, seed=seed, corpus_id=corpus_id)
    job = reopen_job(space, full_id, seed=last.seed)
    for told in job.model.notes:
        _note(told)
    if output is None:
        counts = _list(failed_rows(job, last, _note), as_json=as_json)
        _tell_counts(full_id, counts, as_json=as_json)
        return
    target = Path(output).absolute()
    snapshot = publish_now(job, last, target)
    said = _by_status(snapshot.rows)
    for line in (", ".join(f"{number:,} {status}" for status, number in said.items()), *snapshot.lines):
        _note(line)
    if as_json:
        echo_json({"job_id": full_id, "output": str(target), "rows": said} | _shards(snapshot))
    else:
        click.echo(target)


def _note(told: str) -> None:
    click.echo(f"batchrun: {told}", err=True)


def _by_status(rows: "RowCounts") -> dict[str, int]:
    return {status: getattr(rows, status) for status in ("total", "ok", "failed", "skipped", "pending")}


def _shards(snapshot: "Snapshot") -> dict[str, Any]:
    """How each shard stands, in the order of their numbers; nothing of a corpus without."""
    if snapshot.split is None:
        return {}
    standings = zip(snapshot.split.standings, snapshot.by_shard, strict=True)
    return {
        "shards": [
            {
                "number": standing.shard.number,
                "of": standing.shard.of,
                "state": standing.state,
                "corpus_id": standing.run.corpus_id if standing.run else None,
                "run_id": standing.run.run_id if standing.run else None,
                "rows": _by_status(rows),
            }
            for standing, rows in standings
        ],
        "other_shards": [{"number": shard.number, "of": shard.of} for shard in snapshot.split.others],
    }


def _list(rows: "Iterator[dict[str, Any]]", *, as_json: bool) -> Counter[str]:
    """Show failed rows, one a line; returns how many there are of each error_type."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row["error_type"]] += 1
        if as_json:
            echo_json(row)
        else:
            click.echo(
                f"{row['source']} row {row['row']} id {row['doc_id']}: {row['error_type']}: {row['error']}"
            )
    return counts


def _tell_counts(job_id: str, counts: Counter[str], *, as_json: bool) -> None:
    if as_json:
        reasons = {
            kind: {"rows": number, "permanent": is_permanent(kind)} for kind, number in counts.most_common()
        }
        echo_json({"job_id": job_id, "failed": counts.total(), "by_error_type": reasons})
        return
    click.echo(f"batchrun: {counts.total():,} failed", err=True)
    for kind, number in counts.most_common():
        fate = "permanent" if is_permanent(kind) else "the next submit tries again"
        click.echo(f"batchrun: {number:,} {kind} ({fate})", err=True)
