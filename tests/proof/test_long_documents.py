"""Real vLLM with the real model: documents of many times the context, killed inside, resumed."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrun.prompts.tokenizer import Tokenizer
from tests.commands import Bench
from tests.materials.readmes import readmes
from tests.materials.smollm2 import make_smollm2

pytestmark = pytest.mark.proof

SPEC = """
model = "{model}"

[output]
max_tokens = 32

[engine]
kind = "vllm"
dtype = "float32"
max_model_len = 2048
max_num_batched_tokens = 2048
max_num_seqs = 8

[engine.options]
own_process = false
"""
FEWEST, MOST = 10_000, 25_000


def long_texts(tokenizer: Tokenizer) -> Iterator[str]:
    """READMEs one after the other, as many as make a document of so many tokens."""
    joined = ""
    for readme in readmes():
        joined += f"{readme.text}\n\n"
        length = len(tokenizer.encode_documents([joined]).ids)
        if length >= FEWEST:
            if length <= MOST:
                yield joined
            joined = ""


@pytest.fixture
def corpus(bench: Bench) -> Path:
    bench.model = make_smollm2()
    (bench.home / "jobs" / "summarize.toml").write_text(SPEC.format(model=bench.model))
    found = long_texts(Tokenizer(bench.model))
    texts = [next(found) for _ in range(3)]
    path = bench.home / "corpus.parquet"
    pq.write_table(pa.table({"id": range(3), "text": texts}), path)
    return path


def test_killed_inside_long_documents(bench: Bench, corpus: Path) -> None:
    """No part that was durable is computed again, and the summaries are those of an undisturbed run."""
    process = bench.start("submit", corpus, "--quiet")
    wait_for(bench, process, 1)
    time.sleep(random.Random(time.time_ns()).uniform(0, 40))  # noqa: S311 - when to kill, not a secret
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    durable = nested_calls(bench)
    out, err = bench.start("submit", corpus, "--json").communicate(timeout=1500)
    said = json.loads(out.splitlines()[-1])
    assert [3, 3, 0] == [said["rows"]["ok"], said["rows"]["computed"], said["exit_code"]], err
    calls = nested_calls(bench)
    assert durable.items() <= calls.items()
    assert sum(calls.values()) - sum(durable.values()) == said["tokens"]["input"]
    resumed = bench.output()
    straight = bench.start("submit", corpus, "--seed", "1", "-o", bench.home / "straight.parquet")
    _, err = straight.communicate(timeout=1500)
    assert 0 == straight.returncode, err
    assert [row["summary"] for row in bench.output("straight.parquet")] == [row["summary"] for row in resumed]
    parts = [row["num_parts"] for row in resumed]
    print(f"killed with {len(durable)} calls durable of {len(calls)}; parts {parts}; summaries equal")


def wait_for(bench: Bench, process: "subprocess.Popen[str]", number: int) -> None:
    while len(bench.segments()) < number:
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)


def nested_calls(bench: Bench) -> dict[tuple[int, int], int]:
    """Input tokens of the durable parts and merges, by key."""
    columns = ["hash_hi", "hash_lo", "document_hi", "input_tokens"]
    rows = [row for path in bench.segments() for row in pq.read_table(path, columns=columns).to_pylist()]
    return {
        (row["hash_hi"], row["hash_lo"]): row["input_tokens"]
        for row in rows
        if row["document_hi"] is not None
    }
