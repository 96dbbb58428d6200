"""What batchrun costs beside the engine: `python -m benchmarks.overhead [--rows 1000000]`.

The lead engine costs next to nothing, so what is measured is batchrun. The corpus is made of pieces of
the READMEs of installed packages, about 200 tokens each; summaries have 64 tokens. Every arm is a process of its own; memory is its
peak resident size, as the kernel counts it.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from batchrun.prompts.tokenizer import Tokenizer
from tests.materials.readmes import readmes
from tests.materials.smollm2 import make_smollm2

PIECE_CHARACTERS = 560
BATCH_ROWS = 10_000
SPEC = """
model = "{model}"

[output]
max_tokens = 64

[engine]
kind = "lead"
"""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A finished process: its wall time, its peak memory, and its last line as JSON where it is JSON."""

    seconds: float
    peak_bytes: int
    said: dict[str, Any]


def make_corpus(path: Path, rows: int) -> None:
    """Pieces of READMEs from random places, so that hardly two are equal."""
    text = "\n".join(readme.text for readme in readmes())
    places = random.Random(0)  # noqa: S311 - a corpus, not a secret
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, rows, BATCH_ROWS):
            ids = range(start, min(start + BATCH_ROWS, rows))
            pieces = [f"{number}: {piece}" for number, piece in zip(ids, _pieces(text, places), strict=False)]
            writer.write_table(pa.table({"id": ids, "text": pieces}, schema=schema))


def _pieces(text: str, places: random.Random) -> Iterator[str]:
    while True:
        start = places.randrange(len(text) - 2 * PIECE_CHARACTERS)
        yield text[start : start + places.randrange(PIECE_CHARACTERS // 2, 3 * PIECE_CHARACTERS // 2)]


def run(home: Path, *arguments: object) -> Measured:
    """Run batchrun to its end. Raises CalledProcessError where it fails."""
    words = [sys.executable, "-m", "batchrun", *map(str, arguments)]
    started = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=home)
    peak = 0
    while process.poll() is None:
        peak = max(peak, high_water(process.pid))
        time.sleep(0.02)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words)
    assert process.stdout is not None
    out = process.stdout.read()
    last = out.strip().splitlines()[-1:]
    said = json.loads(last[0]) if last and last[0].startswith(("{", "[")) else {}
    return Measured(seconds=time.monotonic() - started, peak_bytes=peak, said=said)


def bare_loop(corpus: Path, target: Path, model: Path) -> float:
    """Seconds of the least that planning must do, on one thread: read, tokenize, hash, write."""
    tokenizer = Tokenizer(model)
    schema = pa.schema([("key", pa.binary(16)), ("token_ids", pa.large_binary())])
    started = time.monotonic()
    with pq.ParquetWriter(
        target, schema, compression="zstd", compression_level=1, use_dictionary=False
    ) as writer:
        for batch in pq.ParquetFile(corpus).iter_batches(8192, columns=["text"]):
            texts = batch["text"].to_pylist()
            tokens = tokenizer.encode_documents(texts)
            keys = pa.array([xxhash.xxh3_128_digest(text.encode()) for text in texts], pa.binary(16))
            buffers = [None, pa.py_buffer(tokens.offsets * 4), pa.py_buffer(tokens.ids)]
            ids = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(texts), buffers)
            writer.write_batch(pa.RecordBatch.from_arrays([keys, ids], schema=schema))
    return time.monotonic() - started


def python_speed() -> float:
    """Millions of additions in a plain loop a CPU second: what this machine is worth at this moment."""
    started = time.process_time()
    total = 0
    for number in range(5_000_000):
        total += number
    return 5 / (time.process_time() - started)


def high_water(pid: int) -> int:
    """VmHWM of a process in bytes; 0 when it has ended. `ru_maxrss` would hold this script's own size, too."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def workspace(folder: Path, model: Path) -> Path:
    (folder / "jobs").mkdir(parents=True)
    (folder / "jobs" / "summarize.toml").write_text(SPEC.format(model=model))
    return folder


def seconds_to_first_summary(home: Path, corpus: Path) -> float:
    """From the start of a planned run to its first segment on disk, which is at most a second behind."""
    folder = next(home.glob("checkpoints/*/seed-0/segments"))
    before = set(folder.glob("*.parquet"))
    started = time.monotonic()
    words = [sys.executable, "-m", "batchrun", "submit", str(corpus), "--quiet"]
    process = subprocess.Popen(words, cwd=home, stdout=subprocess.DEVNULL)
    while not {path for path in folder.glob("*.parquet") if "-c" not in path.name} - before:
        assert process.poll() is None, "it ended without a segment"
        time.sleep(0.02)
    took = time.monotonic() - started
    process.kill()
    process.wait()
    return took


def startup(home: Path, *arguments: str) -> float:
    """The median wall time of seven runs."""
    return statistics.median(run(home, *arguments).seconds for _ in range(7))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    model = make_smollm2()
    print(
        f"batchrun on the lead engine, {rows:,} rows, {os.cpu_count()} cores, a plain loop {python_speed():.0f} M/s"
    )
    with TemporaryDirectory(prefix="overhead-") as name:
        folder = Path(name)
        measure(folder, model, rows)


def measure(folder: Path, model: Path, rows: int) -> None:
    """Print the table, a line as soon as it is known."""
    whole, tenth, half = folder / "whole.parquet", folder / "tenth.parquet", folder / "half.parquet"
    make_corpus(whole, rows)
    for path, number in ((tenth, rows // 10), (half, rows // 2)):
        pq.write_table(pq.read_table(whole).slice(0, number), path)

    home = workspace(folder / "a", model)
    small = run(home, "submit", tenth, "--json")
    say(
        "end to end, a tenth of the rows", f"{small.seconds:,.1f} s, peak {small.peak_bytes / 2**20:,.0f} MiB"
    )

    home = workspace(folder / "b", model)
    bare = bare_loop(tenth, folder / "bare.parquet", model) * 10
    planned = run(home, "plan", whole, "--json")
    bare = (bare + bare_loop(tenth, folder / "bare.parquet", model) * 10) / 2
    say("the bare loop of planning, one thread", f"{rows / bare:,.0f} rows/s")
    share = bare / planned.seconds
    say(
        "planning alone",
        f"{rows / planned.seconds:,.0f} rows/s ({planned.seconds:,.1f} s), {share:.2f} of the bare loop",
    )
    ran = run(home, "submit", whole, "--json")
    tokens = ran.said["tokens"]["input"]
    record = json.loads(next(home.glob("checkpoints/*/seed-0/corpora/*/runs/*.json")).read_bytes())
    total = planned.seconds + ran.seconds
    peak = max(planned.peak_bytes, ran.peak_bytes)
    say(
        "end to end, all rows",
        f"{rows / total:,.0f} rows/s ({total:,.1f} s; {tokens / rows:.0f} tokens a row)",
    )
    say("phases", ", ".join(f"{name} {seconds:,.1f} s" for name, seconds in ran.said["seconds"].items()))
    say(
        "peak memory",
        f"{peak / 2**20:,.0f} MiB, {peak / small.peak_bytes:.2f} of that for a tenth of the rows",
    )
    waiting = record["metrics"]["store_wait_seconds"] / ran.said["seconds"]["running"]
    say("waiting for the store", f"{waiting:.2%} of the running time")
    stages = record["metrics"]["cpu_seconds"]
    costs = ", ".join(f"{name} {seconds / rows * 1e6:.0f} µs" for name, seconds in stages.items())
    say("CPU time a document, by thread", costs)
    again = run(home, "submit", whole, "--json")
    say("submitted again", f"{again.seconds:,.1f} s, {again.said['rows']['computed']} computed")

    home = workspace(folder / "c", model)
    run(home, "submit", half, "--json")
    run(home, "plan", whole, "--json")
    say("half done, planned: first summary on disk", f"{seconds_to_first_summary(home, whole):,.1f} s")
    say("batchrun --help", f"{startup(home, '--help') * 1000:,.0f} ms")
    say("batchrun status", f"{startup(home, 'status') * 1000:,.0f} ms")
    print(f"  a plain loop at the end: {python_speed():.0f} M/s")


def say(what: str, value: str) -> None:
    print(f"  {what:<44} {value}", flush=True)


if __name__ == "__main__":
    main()
