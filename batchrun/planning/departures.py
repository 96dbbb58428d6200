"""What left a corpus between two of its plans; texts have no other name than their key."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from batchrun import atomic_file
from batchrun.database import Database, DatabaseError, literal, statements
from batchrun.shard import WHOLE, Shard
from batchrun.workspace import CorpusPaths


@dataclass(frozen=True, kw_only=True)
class Departures:
    """Distinct texts of the older plan: those that are not in the newer one, and those that are."""

    departed: int
    stayed: int


def count_departures(before: Path, now: Path, scratch: Path, shard: Shard = WHOLE) -> Departures | None:
    """Hold the texts of a shard in two plans against each other, in bounded memory; None where one of them is gone or
    damaged.
    """
    sql = statements(__package__)["departed"]
    with Database(scratch) as database:
        try:
            plans = {"before": literal(before), "now": literal(now)}
            [row] = database.connection.execute(
                sql, plans | {"ordinal": shard.ordinal, "of": shard.of}
            ).fetchall()
        except DatabaseError:
            return None
    return Departures(departed=row[0], stayed=row[1])


def keep_plan(paths: CorpusPaths, run_id: str) -> None:
    """Keep the plan of a completed run while a newer one takes its place, at no cost in bytes.

    Called before planning. It is for counting alone: lost, nothing else is.
    """
    kept = paths.plan_before(run_id)
    for path in paths.checkpoint.glob("before-*.parquet"):
        if path != kept:
            atomic_file.remove(path)
    if kept.exists() or not paths.plan.exists():
        return
    try:
        kept.hardlink_to(paths.plan)
    except OSError:  # a file system without hard links
        shutil.copyfile(paths.plan, kept)


def plan_of(paths: CorpusPaths, run_id: str) -> Path | None:
    """The plan that a completed run had: the one kept for it, else the one that stands."""
    found = (path for path in (paths.plan_before(run_id), paths.plan) if path.exists())
    return next(found, None)


def forget_plans(paths: CorpusPaths) -> None:
    """Remove the kept plans: a newer run has completed."""
    for path in paths.checkpoint.glob("before-*.parquet"):
        atomic_file.remove(path)
