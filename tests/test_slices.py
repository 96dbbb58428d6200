"""Long outputs in slices, through whole runs: what is kept between slices, and what a killed run goes on from."""

import json
import os
import signal
import subprocess
import time

import pyarrow.parquet as pq

from tests.commands import Bench

SLICE, LONGEST = 16, 200
SPEC = """
model = "{model}"

[output]
max_tokens = {longest}

[residency]
slice_tokens = {slice_tokens}

[long_documents]
policy = "fail"

[engine]
kind = "lead"
max_model_len = 768
max_num_batched_tokens = 64
max_num_seqs = 8

[engine.options]
{options}
"""


def write_spec(bench: Bench, slice_tokens: int, options: str = "") -> None:
    text = SPEC.format(model=bench.model, longest=LONGEST, slice_tokens=slice_tokens, options=options)
    (bench.home / "jobs" / "summarize.toml").write_text(text)


def long_texts(number: int) -> list[str]:
    """Documents whose leads are as long as outputs may be, and in which no words come again."""
    return [" ".join(str(7919 * (250 * n + word) % 100_003) for word in range(60)) for n in range(number)]


def partial_rows(bench: Bench) -> dict[tuple[int, int], list[int]]:
    """The longest beginning that is durable of each output without a verdict, by key."""
    rows = [row for path in bench.segments() for row in pq.read_table(path).to_pylist()]
    whole = {(row["hash_hi"], row["hash_lo"]) for row in rows if row["rank"] > 0}
    begun: dict[tuple[int, int], list[int]] = {}
    for row in sorted(rows, key=lambda row: row["progress"]):
        key = row["hash_hi"], row["hash_lo"]
        if row["rank"] == 0 and key not in whole:
            begun[key] = row["token_ids"]
    return begun


def wait_for_partials(bench: Bench, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 60
    while not any(len(one) > SLICE for one in partial_rows(bench).values()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no slice was committed"
        time.sleep(0.1)


def test_a_killed_run_goes_on_from_the_last_slice(bench: Bench) -> None:
    """What was decoded before the kill is not decoded again: the first request of such an output is that of a
    later slice. The output is that of a run in one piece, whose slices are another length.
    """
    corpus = bench.corpus(long_texts(24))
    write_spec(bench, SLICE, "decode_tokens_per_s = 400")
    process = bench.start("submit", corpus, "--quiet")
    wait_for_partials(bench, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    begun = partial_rows(bench)
    assert begun
    write_spec(bench, SLICE)
    out, err = bench.start("submit", corpus, "--json").communicate(timeout=120)
    said = json.loads(out.splitlines()[-1])
    assert [24, 0] == [said["rows"]["ok"], said["exit_code"]], err
    [requests] = bench.home.glob(f"checkpoints/*/seed-*/corpora/*/requests/{said['run_id']}.parquet")
    first: dict[tuple[int, int], int] = {}
    for row in pq.read_table(requests).to_pylist():
        key = int.from_bytes(row["key"][:8]), int.from_bytes(row["key"][8:])
        first.setdefault(key, row["slice"])
    assert {key: len(tokens) // SLICE for key, tokens in begun.items()} == {
        key: number for key, number in first.items() if number
    }
    sliced = bench.output()
    assert {LONGEST} == {row["output_tokens"] for row in sliced}
    write_spec(bench, 1000)
    assert 0 == bench.submit(corpus, "--seed", "1", "-o", bench.home / "straight.parquet").code
    straight = bench.output("straight.parquet")
    assert [row["summary"] for row in straight] == [row["summary"] for row in sliced]
    assert [row["input_tokens"] for row in straight] == [row["input_tokens"] for row in sliced]
    assert 0 == bench.run("verify", said["job_id"]).code


def test_an_output_between_two_slices_is_pending(bench: Bench) -> None:
    """It is no summary yet: published so far, its row has none, and the next run ends it."""
    corpus = bench.corpus(long_texts(8))
    write_spec(bench, SLICE, "decode_tokens_per_s = 200")
    process = bench.start("submit", corpus, "--json")
    wait_for_partials(bench, process)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert 75 == process.returncode, err
    said = json.loads(out.splitlines()[-1])
    assert 8 == said["rows"]["total"] == said["rows"]["ok"] + said["rows"]["pending"]
    assert 0 == bench.run("results", said["job_id"], "-o", bench.home / "so-far.parquet").code
    for row in bench.output("so-far.parquet"):
        assert (row["status"] == "ok") == (row["summary"] is not None)
    assert partial_rows(bench)
    write_spec(bench, SLICE)
    assert [8, 0] == [bench.submit(corpus).json["rows"][name] for name in ("ok", "pending")]
    assert {} == partial_rows(bench)
