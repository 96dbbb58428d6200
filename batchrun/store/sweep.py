"""Memo rows that nothing needs any more, and the segments written anew without them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from batchrun import atomic_file
from batchrun.database import Database, literal, statements
from batchrun.store.checkpoints import Checkpoints


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What a sweep finds: `going` of `num_rows` memo rows lose to others or belong to no wanted document.

    `segments` hold at least one of them and are replaced, `num_bytes` is about what this frees.
    """

    num_rows: int
    going: int
    segments: list[Path]
    num_bytes: int


Wanted = Callable[[], Iterable[pa.Table]]
"""Gives `hash_hi, hash_lo` of the documents that plans refer to, some at a time; may be asked again."""


def survey(checkpoints: Checkpoints, wanted: Wanted) -> Sweep:
    """What `sweep` would do."""
    return checkpoints.read(lambda database, files: _find(database, files, wanted))


def sweep(checkpoints: Checkpoints, wanted: Wanted) -> Sweep:
    """Write what stays of the segments as one durable segment, then remove them. Nobody commits meanwhile.

    Stopped anywhere, the table holds what it held, or what stays of it; a second sweep does the rest.
    """

    def task(database: Database, files: list[str]) -> Sweep:
        found = _find(database, files, wanted)
        before = sum(path.stat().st_size for path in found.segments)
        after = _rewrite(checkpoints, database, found.segments)
        return Sweep(
            num_rows=found.num_rows,
            going=found.going,
            segments=found.segments,
            num_bytes=max(0, before - after),
        )

    return checkpoints.read(task)


def _find(database: Database, files: list[str], wanted: Wanted) -> Sweep:
    if not files:
        return Sweep(num_rows=0, going=0, segments=[], num_bytes=0)
    named = statements(__package__)
    database.connection.execute(named["create_wanted"])
    for keys in wanted():
        database.connection.register("keys", keys)
        database.connection.execute(named["add_wanted"])
    segments = {"segments": [literal(file) for file in files]}
    database.connection.execute(named["row_documents"], segments)
    database.connection.execute(named["wanted_calls"], segments)
    database.connection.execute(named["staying"])
    counted = [
        (Path(file), number, number - staying)
        for file, number, staying in database.connection.execute(named["rows_by_segment"]).fetchall()
    ]
    return Sweep(
        num_rows=sum(number for _, number, _ in counted),
        going=sum(going for _, _, going in counted),
        segments=[path for path, _, going in counted if going],
        num_bytes=sum(path.stat().st_size * going // number for path, number, going in counted),
    )


def _rewrite(checkpoints: Checkpoints, database: Database, old: Sequence[Path]) -> int:
    """Replace segments by one of the rows that stay, if any; returns its size."""
    if not old:
        return 0
    files = [str(path) for path in old]
    sql = statements(__package__)["any_stays"]
    [(stays,)] = database.connection.execute(sql, {"segments": files}).fetchall()
    written = checkpoints.rewrite(database, "staying_places", old).stat().st_size if stays else 0
    for path in old:
        atomic_file.remove(path)
    return int(written)
