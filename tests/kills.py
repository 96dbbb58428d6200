"""SIGKILL at random instants, and what must hold afterwards."""

import json
import os
import random
import signal
import time
from typing import Any

import pyarrow.parquet as pq

from batchrun.worker.committer import COMMIT_SECONDS
from tests.commands import Bench, texts

STEP_SECONDS = 0.5
"""What the throttled engine may hold in a step, and the disk take for a commit on a busy machine."""


def kill_and_resume(bench: Bench, rows: int, kills: int, seconds: float) -> None:
    """Run a corpus that takes about `seconds`, kill it again and again, let it finish, and compare.

    Held: the output equals that of an undisturbed run, every row is there once, each run takes over exactly
    what was durable at the kill before it, and the tokens that the run records tell of all attempts are
    those of one pass but for what was in flight at the kills.
    """
    corpus = bench.corpus(texts(rows))
    tokens = bench.run("plan", corpus, "--json").json["counts"]["to_run_tokens"]
    rate = tokens / seconds
    bench.write_spec(options=f"prefill_tokens_per_s = {rate:.0f}")
    instants = random.Random(11)  # noqa: S311 - when to kill, not a secret
    finished = []
    for _ in range(kills):
        process = bench.start("submit", corpus, "--quiet")
        time.sleep(instants.uniform(0.2, 2.0 + 2 * seconds / kills))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        finished.append(num_finished(bench))
    assert sorted(finished) == finished
    bench.write_spec()
    last = bench.submit(corpus)
    assert 0 == last.code, last.err
    assert rows == last.json["rows"]["ok"] == last.json["rows"]["reused"] + last.json["rows"]["computed"]
    assert finished[-1] == last.json["rows"]["reused"]
    records = _records(bench)
    reused = [record["rows"]["reused"] for record in records if record["rows"]["total"]]
    assert set(reused) <= {0, *finished}
    attempted = sum(record["tokens"]["input"] for record in records)
    in_flight = kills * rate * (COMMIT_SECONDS + STEP_SECONDS)
    assert attempted <= 1.02 * tokens + in_flight
    disturbed = pq.read_table(bench.home / "corpus.summaries.parquet")
    assert list(range(rows)) == disturbed["doc_id"].to_pylist()
    assert undisturbed(bench, corpus).equals(disturbed.drop_columns(["seed"]))
    print(
        f"{kills} kills: {attempted:,} tokens over all attempts, {tokens:,} in one pass: {attempted / tokens:.4f}"
    )


def num_finished(bench: Bench) -> int:
    """Documents whose summary is durable: keys in the segments."""
    keys = set()
    for path in bench.segments():
        table = pq.read_table(path, columns=["hash_hi", "hash_lo"])
        keys |= set(zip(table["hash_hi"].to_pylist(), table["hash_lo"].to_pylist(), strict=True))
    return len(keys)


def undisturbed(bench: Bench, corpus: object) -> Any:
    """The output of a run from nothing, under another seed, which greedy decoding does not read."""
    target = bench.home / "undisturbed.parquet"
    assert 0 == bench.run("submit", corpus, "--seed", "1", "-o", target).code
    return pq.read_table(target).drop_columns(["seed"])


def _records(bench: Bench) -> list[dict[str, Any]]:
    paths = bench.home.glob("checkpoints/*/seed-0/corpora/*/runs/*.json")
    return sorted((json.loads(path.read_bytes()) for path in paths), key=lambda record: record["run_id"])
