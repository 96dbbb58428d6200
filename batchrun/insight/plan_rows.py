"""Chosen rows of a plan, with their ids: where a document stands, for a person."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from batchrun.documents import plain_values
from batchrun.planning.plan import PLAN_SCHEMA, PlanRecord, damaged, open_checked
from batchrun.workspace import CorpusPaths


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """`key` are the halves of the input hash, None where the plan itself decided the row."""

    place: str
    doc_id: str
    key: tuple[int | None, int | None]
    error: str | None
    flags: tuple[str, ...]


class PlanRows:
    """Read once, a row group at a time. Raises DamageError."""

    def __init__(self, paths: CorpusPaths, plan: PlanRecord, numbers: Collection[int]) -> None:
        columns = [name for name in PLAN_SCHEMA.names if name not in ("status", "input_tokens")]
        wanted = np.array(sorted(numbers), np.int64)
        rows = _chosen(paths.plan, columns, wanted).to_pylist()
        ids = plain_values(_chosen(paths.carried, ["doc_id"], wanted)["doc_id"].combine_chunks())
        self._rows = {
            int(number): PlanRow(
                place=f"{plan.sources[row['source']]} row {row['row']}",
                doc_id=str(doc_id),
                key=(row["hash_hi"], row["hash_lo"]),
                error=row["error"],
                flags=tuple(row["flags"] or ()),
            )
            for number, row, doc_id in zip(wanted, rows, ids, strict=True)
        }

    def row(self, number: int) -> PlanRow:
        """By its number in the plan, of those asked for."""
        return self._rows[number]

    @property
    def keys(self) -> pa.Table:
        """`hash_hi, hash_lo` of those that have a key."""
        keys = [row.key for row in self._rows.values() if row.key[0] is not None]
        return pa.table(
            {name: pa.array([key[half] for key in keys], pa.uint64()) for half, name in enumerate(_HALVES)}
        )


_HALVES = ("hash_hi", "hash_lo")


def _chosen(path: Path, columns: list[str], wanted: "np.ndarray[Any, np.dtype[np.int64]]") -> pa.Table:
    file = open_checked(path)
    start, found = 0, [file.schema_arrow.empty_table().select(columns)]
    for group in range(file.num_row_groups):
        end = start + file.metadata.row_group(group).num_rows
        here = wanted[(wanted >= start) & (wanted < end)] - start
        if len(here):
            try:
                found.append(file.read_row_group(group, columns=columns).take(here))
            except (OSError, pa.ArrowException) as error:
                raise damaged(path, error) from error
        start = end
    return pa.concat_tables(found)
