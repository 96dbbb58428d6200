"""A text column of more than 2 GiB."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands import Bench

pytestmark = pytest.mark.proof

ROWS = 2300
ROW_BYTES = 1_000_000


def test_two_gibibytes_of_text_in_one_row_group(bench: Bench) -> None:
    """Streamed: no offset overflows, every row is accounted for, memory stays far below the column.

    A page of Parquet can only be read whole; the writer here makes them of 16 MB.
    """
    path = bench.home / "corpus.parquet"
    schema = pa.schema([("id", pa.int64()), ("text", pa.large_string())])
    sentence = "All work and no play makes a long document. "
    rows = [f"{number} " + sentence * (ROW_BYTES // len(sentence)) for number in range(ROWS)]
    table = pa.table({"id": range(ROWS), "text": rows}, schema=schema)
    pq.write_table(table, path, row_group_size=ROWS, write_batch_size=16)
    del rows, table
    process = bench.start("submit", path, "--json")
    out, err = process.communicate(timeout=1200)
    assert 3 == process.returncode, err
    assert f'"failed": {ROWS}' in out
    [record] = bench.run("status", "--json").json
    peak = record["metrics"]["peak_memory_bytes"]
    print(f"peak memory of the run: {peak / 2**30:.2f} GiB for {ROWS * ROW_BYTES / 2**30:.1f} GiB of text")
    assert 0 < peak < 1.5 * 2**30
