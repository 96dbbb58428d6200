"""How busy batchrun keeps an engine: `python -m benchmarks.feeding [--seconds 60]`.

The lead engine in real time, with the rates of a 1B-class model on a large GPU (40,000 prefill tokens/s, 6,000
decode tokens/s) and a KV cache of 400,000 tokens, runs documents whose lengths are those of Debian's
linux-doc-6.1 (tests/materials/linux_doc_lengths.txt), made of words from the READMEs of installed packages. What
is told stands in the run record: the time in which the engine had nothing to compute because nothing was handed
to it, and the steps that were not full though there was work for them.
"""

import argparse
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.materials.readmes import readmes
from tests.materials.smollm2 import make_smollm2

PREFILL_RATE, DECODE_RATE = 40_000, 6_000
OUTPUT_TOKENS = 60
TOKENS_A_WORD = 1.9
LENGTHS = Path(__file__).parents[1] / "tests" / "materials" / "linux_doc_lengths.txt"
SPEC = f"""
model = "{{model}}"

[output]
max_tokens = 160

[engine]
kind = "lead"
max_model_len = 8192
max_num_batched_tokens = 8192

[engine.options]
prefill_tokens_per_s = {PREFILL_RATE}
decode_tokens_per_s = {DECODE_RATE}
decode_half_batch = 64
kv_tokens = 400000
output_tokens = {OUTPUT_TOKENS}
"""


def make_corpus(path: Path, seconds: float) -> int:
    """Documents that take the engine about `seconds`; their number."""
    draw = random.Random(0)  # noqa: S311 - a corpus, not a secret
    words = "\n".join(readme.text for readme in readmes()).split()
    lengths = [int(length) for length in LENGTHS.read_text(encoding="utf-8").split()]
    draw.shuffle(lengths)
    texts: list[str] = []
    left = seconds
    while left > 0:
        length = lengths[len(texts) % len(lengths)]
        start = draw.randrange(len(words))
        texts.append(" ".join((words[start:] + words)[: max(1, int(length / TOKENS_A_WORD))]))
        left -= length / PREFILL_RATE + OUTPUT_TOKENS / DECODE_RATE
    pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), path)
    return len(texts)


def run(home: Path, corpus: Path) -> dict[str, Any]:
    """Submit, and read the run's record. Raises CalledProcessError where it fails."""
    words = [sys.executable, "-m", "batchrun", "submit", str(corpus), "--quiet", "--home", str(home)]
    subprocess.run(words, check=True)
    [path] = home.glob("checkpoints/*/seed-0/corpora/*/runs/*.json")
    record: dict[str, Any] = json.loads(path.read_bytes())
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of the engine's work")
    seconds = parser.parse_args().seconds
    with TemporaryDirectory(prefix="feeding-") as name:
        home = Path(name)
        (home / "jobs").mkdir()
        (home / "jobs" / "summarize.toml").write_text(SPEC.format(model=make_smollm2()))
        number = make_corpus(home / "corpus.parquet", seconds)
        record = run(home, home / "corpus.parquet")
    metrics, running = record["metrics"], record["seconds"]["running"]
    tokens = record["tokens"]["input"]
    print(
        f"{number:,} documents, {tokens:,} prompt tokens in {running:.1f} s ({tokens / running:,.0f} a second), "
        f"{os.cpu_count()} cores\n"
        f"  idle for want of work     {metrics['idle_seconds'] / running:.2%} of the time\n"
        f"  starved steps             {metrics['starved_steps']:,} of {metrics['num_steps']:,}\n"
        f"  preemptions               {metrics['num_preemptions']:,}"
    )


if __name__ == "__main__":
    main()
