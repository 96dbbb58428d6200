"""Runs that do not come to their own end: killed, terminated, interrupted; alone and side by side."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from batchrun.database import Database
from tests.commands import Bench, texts
from tests.kills import kill_and_resume

DURABLE_SECONDS = 3.0


def wait_for_segments(bench: Bench, process: "subprocess.Popen[str]", number: int = 1) -> None:
    deadline = time.monotonic() + 60
    while len(bench.segments()) < number:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no segment was committed"
        time.sleep(0.02)


def members(group: int) -> list[int]:
    """The living processes of a process group."""
    return [pid for pid in psutil.pids() if _group(pid) == group]


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def throttled(bench: Bench, corpus: Path, seconds: float) -> float:
    """Write a spec under which the corpus takes about `seconds`; returns its rate in tokens/s."""
    plan = bench.run("plan", corpus, "--json").json
    rate = plan["counts"]["to_run_tokens"] / seconds
    bench.write_spec(options=f"prefill_tokens_per_s = {rate:.0f}")
    return float(rate)


def test_killed_again_and_again_the_output_is_the_same(bench: Bench) -> None:
    """After SIGKILL at random instants: every row once, equal to an undisturbed run, and what was committed
    is not computed again.
    """
    kill_and_resume(bench, rows=400, kills=4, seconds=6.0)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 75), (signal.SIGINT, 130), (signal.SIGUSR1, 75), (signal.SIGHUP, 75)],
)
def test_a_signal_stops_in_good_order(number: signal.Signals, code: int, bench: Bench) -> None:
    """Admission stops, what is finished is durable within seconds, nothing is published, and the record
    and the JSON line say so; resume goes on from there.
    """
    corpus = bench.corpus(texts(300))
    throttled(bench, corpus, 12.0)
    process = bench.start(
        "submit", corpus, "--json", preexec_fn=lambda: signal.signal(number, signal.SIG_DFL)
    )
    wait_for_segments(bench, process, 2)
    started = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert DURABLE_SECONDS > time.monotonic() - started
    assert code == process.returncode
    said = json.loads(out.strip().splitlines()[-1])
    assert ["interrupted", number.name, code] == [said["state"], said["stop_reason"], said["exit_code"]]
    assert f"batchrun resume {said['job_id']}" in err
    assert not (bench.home / "corpus.summaries.parquet").exists()
    computed = said["rows"]["computed"]
    assert 0 < computed < 300
    assert [300, computed, 300 - computed] == [said["rows"][name] for name in ("total", "ok", "pending")]
    status = bench.run("status", said["job_id"], "--json").json[0]
    assert ["interrupted", computed] == [status["state"], status["rows"]["computed"]]
    bench.write_spec()
    corpus.unlink()
    resumed = bench.run("resume", said["job_id"], "--json")
    assert [0, computed, 300 - computed] == [
        resumed.code,
        resumed.json["rows"]["reused"],
        resumed.json["rows"]["computed"],
    ]


def test_a_run_that_ends_with_its_parent(bench: Bench) -> None:
    """Where it is asked for: a scheduler's worker that is killed leaves no run behind that holds the lock."""
    corpus = bench.corpus(texts(300))
    throttled(bench, corpus, 60.0)
    words = [sys.executable, "-m", "batchrun", "submit", str(corpus), "--home", str(bench.home)]
    code = (
        "import os, subprocess, time; os.environ['BATCHRUN_ENDS_WITH_PARENT'] = str(os.getpid()); "
        f"subprocess.Popen({words!r}); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    while not bench.segments():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    [child] = psutil.Process(parent.pid).children()
    parent.kill()
    parent.wait()
    assert child.wait(15) is None
    [status] = bench.run("status", "--json").json
    assert ["interrupted", "SIGTERM", 75] == [status[name] for name in ("state", "stop_reason", "exit_code")]


def test_a_hangup_that_is_ignored_stays_ignored(bench: Bench) -> None:
    """As under nohup: the terminal may go."""
    corpus = bench.corpus(texts(100))
    throttled(bench, corpus, 2.0)
    process = bench.start(
        "submit", corpus, "--json", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    wait_for_segments(bench, process)
    process.send_signal(signal.SIGHUP)
    out, err = process.communicate(timeout=30)
    assert 0 == process.returncode, err
    assert 100 == json.loads(out.strip().splitlines()[-1])["rows"]["ok"]


def test_a_signal_while_planning_stops_at_once(bench: Bench) -> None:
    """There is no plan then, and the next submit makes one."""
    corpus = bench.corpus(texts(60_000))
    process = bench.start("submit", corpus, "--json")
    while not list(bench.home.glob("checkpoints/*/seed-0/corpora/*/.tmp-*")):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert [75, "SIGTERM"] == [process.returncode, json.loads(out.splitlines()[-1])["stop_reason"]]
    assert not list(bench.home.glob("checkpoints/*/seed-0/corpora/*/plan.json"))
    assert not list(bench.home.glob("checkpoints/*/seed-0/corpora/*/.tmp-*"))
    assert 0 == bench.submit(corpus).code


def test_a_signal_inside_a_query_is_a_stop_like_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB answers a signal with an error of its own; the run ends as stopped all the same."""
    from batchrun.store import checkpoints

    def slow(database: Database, _: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        database.connection.execute(
            "SELECT sum(sqrt(a.range + b.range)) FROM range(90000) a, range(90000) b"
        ).fetchall()

    monkeypatch.setattr(checkpoints, "find_winners", slow)
    result = bench.submit(bench.corpus(texts(3)))
    assert [75, "SIGTERM"] == [result.code, result.json["stop_reason"]]


def test_a_closed_stderr_does_not_end_a_run(bench: Bench) -> None:
    """Who reads the log may die; the job goes on, and its end is its own."""
    corpus = bench.corpus(texts(60))
    throttled(bench, corpus, 3.0)
    process = bench.start("submit", corpus, "--json")
    assert process.stderr is not None
    process.stderr.close()
    process.stderr = None
    out, _ = process.communicate(timeout=60)
    assert 0 == process.returncode
    assert 60 == json.loads(out.splitlines()[-1])["rows"]["ok"]


def test_a_second_submit_names_the_holder(bench: Bench) -> None:
    """11, with run, process and what to do; another corpus of the same job runs beside it."""
    corpus, other = bench.corpus(texts(200)), bench.corpus(texts(30), "other.parquet")
    throttled(bench, corpus, 60.0)
    process = bench.start("submit", corpus)
    try:
        wait_for_segments(bench, process)
        refused = bench.submit(corpus)
        assert [11, 11] == [refused.code, refused.json["exit_code"]]
        assert f"process {process.pid} on" in refused.err
        [running] = bench.run("status", "--json").json
        assert ["running", process.pid] == [running["state"], running["pid"]]
        beside = bench.run("submit", other, "--json")
        assert 0 == beside.code
        assert 30 == beside.json["rows"]["ok"]
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
    [killed] = [run for run in bench.run("status", "--json").json if run["pid"] == process.pid]
    assert ["interrupted", "killed"] == [killed["state"], killed["stop_reason"]]


def test_two_corpora_at_once_both_complete(bench: Bench) -> None:
    """Two runs of one job write and compact one memo table at the same time."""
    paths = [
        bench.corpus([f"{name} {text}" for text in texts(150)], f"{name}.parquet") for name in ("a", "b")
    ]
    bench.write_spec(options="prefill_tokens_per_s = 4000")
    processes = [bench.start("submit", path, "--json") for path in paths]
    for process, name in zip(processes, ("a", "b"), strict=True):
        out, err = process.communicate(timeout=120)
        assert 0 == process.returncode, err
        assert 150 == json.loads(out.splitlines()[-1])["rows"]["ok"]
        assert all(row["summary"].startswith(name) for row in bench.output(f"{name}.summaries.parquet"))


def test_results_while_it_runs(bench: Bench) -> None:
    """What there is can be published at any time; the rest is pending."""
    corpus = bench.corpus(texts(300))
    throttled(bench, corpus, 60.0)
    process = bench.start("submit", corpus)
    try:
        wait_for_segments(bench, process)
        [running] = bench.run("status", "--json").json
        result = bench.run("results", running["job_id"], "-o", bench.home / "now.parquet", "--json")
    finally:
        process.kill()
        process.communicate()
    rows = result.json["rows"]
    assert 300 == rows["total"] == rows["ok"] + rows["pending"]
    assert 0 < rows["ok"] < 300


def test_without_a_terminal_there_are_plain_lines(bench: Bench) -> None:
    """No control characters, no bar."""
    process = bench.start("submit", bench.corpus(texts(5)))
    out, err = process.communicate(timeout=60)
    assert 0 == process.returncode
    assert not [character for character in out + err if ord(character) < 32 and character != "\n"]
    assert all(line.startswith("batchrun: ") for line in err.splitlines())


def test_nothing_is_left_running(bench: Bench) -> None:
    """After a run its process has no children, and the scratch folder is empty."""
    process = bench.start("submit", bench.corpus(texts(5)))
    process.communicate(timeout=60)
    assert [] == members(process.pid)
    assert [] == list(bench.home.glob("buckets/*/seed-0/scratch/*"))


def test_what_a_killed_run_left_is_removed(bench: Bench) -> None:
    """Scratch folders and half-written files of a dead process go when the next run starts."""
    corpus = bench.corpus(texts(200))
    throttled(bench, corpus, 60.0)
    process = bench.start("submit", corpus)
    wait_for_segments(bench, process)
    process.kill()
    process.communicate()
    left = list(bench.home.glob(f"buckets/*/seed-0/scratch/*+{process.pid}+*"))
    assert left
    bench.write_spec()
    assert 0 == bench.submit(corpus).code
    assert [] == list(bench.home.glob("buckets/*/seed-0/scratch/*"))
