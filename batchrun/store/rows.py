"""Whole memo rows at chosen places. DuckDB decides which, over narrow columns; the rows themselves never pass
through it: what it holds of wide ones while it reads or writes them can not spill (at 128 MB it failed on
500,000 rows of 64 tokens).
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from batchrun.database import Database

ROWS_AT_ONCE = 8192


def rows_of(database: Database, path: Path, named: str) -> Iterator[pa.Table]:
    """Rows of a segment, in its order: at the places that the query `named` gives for its `$file`.

    `named` is SQL that gives `place`, rising, and may give more columns, which stand behind the row's own.
    A place may come several times. Raises OSError.
    """
    chosen = database.read(named, {"file": str(path)})
    waiting = chosen.schema.empty_table()
    start = 0
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
        for batch in file.iter_batches(ROWS_AT_ONCE):
            end = start + batch.num_rows
            waiting = _filled(waiting, chosen, end)
            if not waiting.num_rows:  # the rest of the segment is not asked for
                return
            num_here = int(np.searchsorted(waiting["place"].to_numpy(), end))
            if num_here:
                here = waiting.slice(0, num_here)
                rows = pa.Table.from_batches([batch.take(pa.array(here["place"].to_numpy() - start))])
                for name in here.column_names[1:]:
                    rows = rows.append_column(name, here[name])
                yield rows
            waiting = waiting.slice(num_here)
            start = end


def _filled(waiting: pa.Table, chosen: pa.RecordBatchReader, end: int) -> pa.Table:
    """What is chosen, at least as far as the row `end`."""
    while not waiting.num_rows or waiting["place"][-1].as_py() < end:
        more = next(chosen, None)
        if more is None:
            break
        waiting = pa.concat_tables([waiting, pa.Table.from_batches([more])])
    return waiting
