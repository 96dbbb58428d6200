"""SIGKILL at random instants, and what must hold afterwards."""

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from batchrun.worker.committer import COMMIT_SECONDS
from tests.commands import Bench, texts
from tests.ledger import calls

STEP_SECONDS = 0.5
"""What the throttled engine may hold in a step, and the disk take for a commit on a busy machine."""


def kill_and_resume(bench: Bench, rows: int, kills: int, seconds: float) -> None:
    """Run a corpus that takes about `seconds`, kill it again and again, let it finish, and compare.

    Held: the output equals that of an undisturbed run, every row is there once, no run computes a call that
    was durable before it, and a kill costs no more than what the engine computed in a commit interval.
    """
    corpus = bench.corpus(texts(rows))
    tokens = bench.run("plan", corpus, "--json").json["counts"]["to_run_tokens"]
    rate = tokens / seconds
    bench.write_spec(options=f"prefill_tokens_per_s = {rate:.0f}")
    instants = random.Random(11)  # noqa: S311 - when to kill, not a secret
    durable: set[str] = set()
    lost = attempted = 0
    for number in range(kills):
        computed = killed_run(bench, corpus, number, instants.uniform(0.2, 2.0 + 2 * seconds / kills))
        assert not durable & computed.keys(), "what is durable is not computed again"
        before, durable = durable, keys_on_disk(bench)
        assert before <= durable <= before | computed.keys()
        cost = sum(computed[key] for key in computed.keys() - durable)
        assert cost <= rate * (COMMIT_SECONDS + STEP_SECONDS)
        lost += cost
        attempted += sum(computed.values())
    bench.write_spec()
    last = bench.start("submit", corpus, "--json", ledger=bench.home / "ledger")
    out, err = last.communicate(timeout=120)
    assert 0 == last.returncode, err
    counts = json.loads(out.splitlines()[-1])["rows"]
    assert [rows, len(durable), rows - len(durable)] == [
        counts[name] for name in ("ok", "reused", "computed")
    ]
    attempted += sum(calls(bench.home / "ledger").values())
    assert tokens + lost == attempted
    disturbed = pq.read_table(bench.home / "corpus.summaries.parquet")
    assert list(range(rows)) == disturbed["doc_id"].to_pylist()
    assert undisturbed(bench, corpus).equals(disturbed.drop_columns(["seed"]))
    print(
        f"{kills} kills: {attempted:,} tokens computed over all attempts, {tokens:,} in one pass: "
        f"{attempted / tokens:.4f}; {lost / kills:,.0f} tokens in flight at a kill"
    )


def killed_run(bench: Bench, corpus: Path, number: int, after: float) -> dict[str, int]:
    """Input tokens of each call that a run computed before it was killed, by key."""
    ledger = bench.home / f"ledger-{number}"
    process = bench.start("submit", corpus, "--quiet", ledger=ledger)
    time.sleep(after)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return calls(ledger)


def keys_on_disk(bench: Bench) -> set[str]:
    """Documents whose summary is durable, as hex digits."""
    return {key for path in bench.segments() for key in keys_of(path)}


def keys_of(segment: Path) -> list[str]:
    """The keys of a segment's rows, as hex digits."""
    table = pq.read_table(segment, columns=["hash_hi", "hash_lo"])
    halves = zip(table["hash_hi"].to_pylist(), table["hash_lo"].to_pylist(), strict=True)
    return [f"{high:016x}{low:016x}" for high, low in halves]


def undisturbed(bench: Bench, corpus: object) -> Any:
    """The output of a run from nothing, under another seed, which greedy decoding does not read."""
    target = bench.home / "undisturbed.parquet"
    assert 0 == bench.run("submit", corpus, "--seed", "1", "-o", target).code
    return pq.read_table(target).drop_columns(["seed"])
