"""Shards as processes beside each other, one of them killed."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pyarrow.parquet as pq

from tests.commands import Bench, texts
from tests.kills import keys_on_disk, undisturbed
from tests.ledger import calls

ROWS, SECONDS = 300, 5.0


def start(bench: Bench, corpus: Path, number: int, ledger: Path) -> "subprocess.Popen[str]":
    return bench.start("submit", corpus, "--shard", f"{number}/3", "--json", ledger=ledger)


def wait_for_commits(bench: Bench, process: "subprocess.Popen[str]") -> None:
    """Until a segment of the run of a process is on disk."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        run_ids = [run["run_id"] for run in bench.run("status", "--json").json if run["pid"] == process.pid]
        if any(path.name.startswith(run_id) for run_id in run_ids for path in bench.segments()):
            return
        time.sleep(0.05)
    raise AssertionError("no segment was committed")


def states(bench: Bench) -> list[str]:
    result = bench.run("results", "summarize", "-o", bench.home / "joined.parquet", "--json")
    assert (0, ROWS) == (result.code, result.json["rows"]["total"])
    return [shard["state"] for shard in result.json["shards"]]


def test_three_at_once_and_one_is_killed(bench: Bench) -> None:
    """The others go on; `results` says which is unfinished. Submitted again it computes nothing that was durable, no
    shard computes what is another's, and the joined output is that of a straight run.
    """
    corpus = bench.corpus([*texts(ROWS - 2), *texts(2)])
    tokens = bench.run("plan", corpus, "--json").json["counts"]["to_run_tokens"]
    bench.write_spec(options=f"prefill_tokens_per_s = {tokens / 3 / SECONDS:.0f}")
    ledgers = [bench.home / f"ledger-{number}" for number in (1, 2, 3)]
    shards = [start(bench, corpus, number, ledger) for number, ledger in enumerate(ledgers, 1)]
    wait_for_commits(bench, shards[1])
    os.killpg(shards[1].pid, signal.SIGKILL)
    shards[1].communicate()
    computed, durable = calls(ledgers[1]), keys_on_disk(bench)
    assert "unfinished" == states(bench)[1]
    for process in (shards[0], shards[2]):
        out, err = process.communicate(timeout=120)
        assert 0 == process.returncode, err
        assert json.loads(out.splitlines()[-1])["output"] is None
    assert ["complete", "unfinished", "complete"] == states(bench)
    pending = pq.read_table(bench.home / "joined.parquet")["status"].to_pylist().count("pending")
    assert pending

    bench.write_spec()
    again = start(bench, corpus, 2, bench.home / "ledger-again")
    out, err = again.communicate(timeout=120)
    assert 0 == again.returncode, err
    rows = json.loads(out.splitlines()[-1])["rows"]
    recomputed = calls(bench.home / "ledger-again").keys()
    assert not durable & recomputed
    assert [len(durable & computed.keys()), len(recomputed)] == [rows["reused"], rows["computed"]]
    assert ["complete"] * 3 == states(bench)
    by_shard = [set(calls(ledgers[0])), computed.keys() | recomputed, set(calls(ledgers[2]))]
    assert ROWS - 2 == sum(map(len, by_shard)) == len(set().union(*by_shard))
    joined = pq.read_table(bench.home / "joined.parquet").drop_columns(["seed"])
    assert undisturbed(bench, corpus).equals(joined)
    assert 0 == bench.run("verify", "summarize").code
