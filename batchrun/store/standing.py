"""How the rows of a plan stand by the memo table, counted without an output."""

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchrun.database import Database, statements
from batchrun.records import RowStatus
from batchrun.run_record import RowCounts
from batchrun.shard import numbers_of

_STATUSES = {2: RowStatus.OK, 1: RowStatus.FAILED}
"""Of a memo row by its rank; without one, or with part of an output, a row is pending."""

StatusCounts = Counter[tuple[int, str]]
"""Rows by the number of their share, from 0, and status."""


def count_statuses(
    plan: pa.RecordBatch | pa.Table, statuses: pa.ChunkedArray, num_shares: int
) -> StatusCounts:
    """Of rows of a plan, with the status of each. A row without a status is not counted."""
    shares = numbers_of(plan) % num_shares
    counts: StatusCounts = Counter()
    for status in RowStatus:
        is_it = pc.fill_null(pc.equal(statuses, status), False).to_numpy(zero_copy_only=False)
        for share, number in enumerate(np.bincount(shares[is_it].astype(np.int64)).tolist()):
            counts[share, status] += number
    return counts


def row_counts(counts: Mapping[tuple[int, str], int], num_shares: int) -> list[RowCounts]:
    """The rows of each share."""
    by_share = [dict.fromkeys(RowStatus, 0) for _ in range(num_shares)]
    for (share, status), number in counts.items():
        by_share[share][RowStatus(status)] += number
    return [RowCounts(total=sum(each.values()), **each) for each in by_share]


def count_rows(database: Database, plan: Iterable[pa.Table], num_shares: int) -> list[RowCounts]:
    """The rows of each share by status, over a database with the table `winner`.

    `plan`: `source, row, hash_hi, hash_lo, status` of its rows, some at a time.
    """
    named = statements(__package__)
    connection = database.connection
    connection.execute(named["create_asking"])
    counts: StatusCounts = Counter()
    for rows in plan:
        counts += count_statuses(rows, rows["status"], num_shares)
        shares = pa.array((numbers_of(rows) % num_shares).astype(np.int32))
        asking = rows.add_column(0, "share", shares).filter(pc.is_null(rows["status"]))
        connection.register("keys", asking.select(["share", "hash_hi", "hash_lo"]))
        connection.execute("INSERT INTO asking SELECT * FROM keys")
        connection.unregister("keys")
    for share, rank, number in connection.execute(named["asking_by_rank"]).fetchall():
        counts[share, _STATUSES.get(rank, RowStatus.PENDING)] += number
    return row_counts(counts, num_shares)
