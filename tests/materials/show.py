"""`python -m tests.materials.show OUT.parquet`: where the summaries are, and three of them."""

import sys
from pathlib import Path

import pyarrow.parquet as pq

SHOWN = 3


def main(path: Path) -> None:
    rows = pq.read_table(path).to_pylist()
    done = [row for row in rows if row["status"] == "ok"]
    print(f"\n{len(done)} summaries of {len(rows)} rows are in {path.absolute()}; {SHOWN} of them:")
    for row in done[:: max(1, len(done) // SHOWN)][:SHOWN]:
        print(f"\n{row['doc_id']} ({row['input_tokens']:,} tokens read)\n  {row['summary']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
