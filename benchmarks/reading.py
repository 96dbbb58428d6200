"""One corpus in three forms: `python -m benchmarks.reading [FOLDER...]`.

Folders of documents are read as they are, and written again as Parquet and as compressed JSONL. `batchrun plan`
takes each; keys, tokens and buckets must be the same. Each arm is a process of its own, run three times,
from nothing but a warm disk; the quickest counts, for other work of the machine only adds. Then the folders go
through the lead engine, and every row is accounted for.
"""

import argparse
import gzip
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from batchrun.corpus.corpus import ColumnWishes, open_corpus
from batchrun.corpus.inputs import find_files
from tests.materials.smollm2 import FOLDER as SMOLLM2
from tests.materials.smollm2 import make_smollm2

FOLDER = Path("/usr/share/doc/linux-doc-6.1/Documentation")
"""Of Debian's package linux-doc-6.1: 5,127 compressed .rst and .txt files."""
SOURCES = FOLDER.parent / "html" / "_sources"
"""Of the same package: 3,183 .txt files."""

SPEC = """
model = "{model}"

[engine]
kind = "lead"
"""
SCHEMA = pa.schema([("id", pa.string()), ("text", pa.string())])
PLANNED = ["hash_hi", "hash_lo", "input_tokens", "status", "error_type"]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What a plan came to: its seconds, its rows, and documents by bucket."""

    seconds: float
    rows: pa.Table
    buckets: dict[str, int]


def documents(*folders: Path) -> Iterator[tuple[list[str], list[str | None]]]:
    """Ids and texts of folders, batch by batch, as a run reads them."""
    files = find_files(list(map(str, folders)), lambda _: False).files
    for batch in open_corpus(files, ColumnWishes(), None).batches():
        yield batch.carried["doc_id"].to_pylist(), batch.texts


def write_forms(folders: list[Path], target: Path) -> dict[str, list[Path]]:
    """The folders as Parquet and as JSONL in gzip; returns all three by name."""
    table, text = target / "docs.parquet", target / "docs.jsonl.gz"
    with (
        pq.ParquetWriter(table, SCHEMA, compression="zstd") as parquet,
        gzip.open(text, "wt", compresslevel=4, encoding="utf-8") as lines,
    ):
        for ids, texts in documents(*folders):
            parquet.write_table(pa.table([ids, texts], schema=SCHEMA))
            lines.writelines(
                json.dumps({"id": name, "text": text}) + "\n" for name, text in zip(ids, texts, strict=True)
            )
    return {"folders": folders, "Parquet": [table], "JSONL in gzip": [text]}


def plan(home: Path, corpus: list[Path]) -> Planned:
    """Plan three times, each time from nothing. Raises CalledProcessError where it fails."""
    seconds = []
    words = [sys.executable, "-m", "batchrun", "plan", *map(str, corpus), "--json", "--home"]
    for number in range(3):
        space = home / str(number)
        (space / "jobs").mkdir(parents=True)
        (space / "jobs" / "summarize.toml").write_text(SPEC.format(model=make_smollm2(SMOLLM2)))
        started = time.monotonic()
        done = subprocess.run([*words, str(space)], capture_output=True, text=True, check=True)
        seconds.append(time.monotonic() - started)
    [file] = space.glob("checkpoints/*/seed-0/corpora/*/plan.parquet")
    found = json.loads(done.stdout.splitlines()[-1])
    return Planned(
        seconds=min(seconds),
        rows=pq.read_table(file, columns=PLANNED),
        buckets=found["outline"]["documents_by_bucket"],
    )


def submit(home: Path, corpus: list[Path]) -> str:
    """Run the planned corpus on the lead engine and check its rows; says what came out."""
    words = [sys.executable, "-m", "batchrun", "submit", *map(str, corpus), "--max-error-rate", "1"]
    output = home / "summaries.parquet"
    started = time.monotonic()
    subprocess.run([*words, "-o", str(output), "--quiet", "--home", str(home / "2")], check=True)
    seconds = time.monotonic() - started
    rows = pq.read_table(output, columns=["status", "num_parts", "kept_tokens"])
    counts = {item["values"]: item["counts"] for item in pc.value_counts(rows["status"]).to_pylist()}
    parts = max(filter(None, rows["num_parts"].to_pylist()))
    longest = max(filter(None, rows["kept_tokens"].to_pylist()))
    return f"{rows.num_rows:,} rows out in {seconds:.1f} s: {counts}; the longest of {longest:,} tokens in {parts} parts"


def main() -> None:
    parser = argparse.ArgumentParser(description="One corpus in three forms.")
    parser.add_argument("folders", type=Path, nargs="*", default=[FOLDER, SOURCES])
    folders = parser.parse_args().folders
    with TemporaryDirectory() as temporary:
        target = Path(temporary)
        forms = write_forms(folders, target)
        plans = {name: plan(target / name, corpus) for name, corpus in forms.items()}
        ran = submit(target / "folders", folders)
    first = plans["folders"]
    for name, found in plans.items():
        is_same = found.rows == first.rows and found.buckets == first.buckets
        same = "the same keys, tokens and buckets" if is_same else "OTHER keys, tokens or buckets"
        print(f"{name:<14} {found.rows.num_rows:>7,} rows  {found.seconds:6.2f} s  {same}")
    print(f"documents by bucket: {first.buckets}")
    print(f"lead engine: {ran}")


if __name__ == "__main__":
    main()
