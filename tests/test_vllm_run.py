"""A whole run on real vLLM, with the two-layer model: killed, terminated, resumed."""

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from batchrun.orphans import orphans
from tests.commands import Bench, set_engine, texts

pytestmark = pytest.mark.engine

ROWS = 60


@pytest.fixture
def corpus(bench: Bench) -> Path:
    """Long enough outputs that a run takes seconds."""
    spec = bench.home / "jobs" / "summarize.toml"
    text = spec.read_text().replace('kind = "lead"', 'kind = "vllm"\ndtype = "float32"\nmax_num_seqs = 4')
    spec.write_text(text.replace("max_tokens = 20", "max_tokens = 120") + "own_process = true\n")
    return bench.corpus(texts(ROWS))


def started(bench: Bench, corpus: Path) -> "tuple[subprocess.Popen[str], list[psutil.Process]]":
    """A run that has finished a document, and the engine's processes."""
    process = bench.start("submit", corpus, "--json")
    deadline = time.monotonic() + 200
    while not bench.segments():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "nothing was finished"
        time.sleep(0.05)
    children = psutil.Process(process.pid).children(recursive=True)
    assert core_of(children)
    return process, children


def core_of(children: list[psutil.Process]) -> psutil.Process:
    """The process of vLLM's core."""
    [core] = [child for child in children if "EngineCore" in " ".join(child.cmdline()) + child.name()]
    return core


def opened(pid: int) -> list[Path]:
    """The files that a process holds open."""
    found = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(descriptor.readlink())
    return found


def test_killed_then_terminated_then_resumed(bench: Bench, corpus: Path) -> None:
    """SIGKILL of the parent: no orphan, and the lock is free. SIGTERM: 75, and nothing is left. Then the
    rest is computed, and every summary equals that of the same engine in one go, inside this process.
    """
    process, children = started(bench, corpus)
    [lock] = bench.home.glob("checkpoints/*/seed-0/corpora/*/lock")
    assert lock in opened(process.pid)
    assert not [child for child in children if lock in opened(child.pid)]
    os.kill(process.pid, signal.SIGKILL)
    assert "" == process.communicate()[0]
    assert [] == psutil.wait_procs(children, timeout=15)[1]
    before = set(bench.segments())
    process = bench.start("submit", corpus, "--json")
    while set(bench.segments()) == before:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert 75 == process.returncode, err
    assert [] == psutil.wait_procs(children, timeout=15)[1]
    said = json.loads(out.splitlines()[-1])
    assert 0 < said["rows"]["reused"] < said["rows"]["reused"] + said["rows"]["computed"] < ROWS
    spec = bench.home / "jobs" / "summarize.toml"
    spec.write_text(spec.read_text().replace("own_process = true", "own_process = false"))
    again = bench.submit(corpus)
    assert [0, said["job_id"]] == [again.code, again.json["job_id"]]
    resumed = bench.output()
    assert {"ok"} == {row["status"] for row in resumed}
    assert 0 == bench.run("submit", corpus, "--seed", "1", "-o", bench.home / "straight.parquet").code
    assert [row["summary"] for row in bench.output("straight.parquet")] == [row["summary"] for row in resumed]
    check_requests(bench)


def check_requests(bench: Bench) -> None:
    """The killed run's requests, whose last part may be missing, the terminated run's and the others': each with
    its times, that add up; in a straight run each document once.
    """
    folder = next(bench.home.glob("checkpoints/*/seed-0/corpora/*/requests"))
    assert not list(folder.glob("*.part-*"))
    straight = next(bench.home.glob("checkpoints/*/seed-1/corpora/*/requests"))
    files = [pq.read_table(path).to_pylist() for path in (*folder.iterdir(), *straight.iterdir())]
    assert ROWS == len({row["key"] for row in files[-1]}) == len(files[-1])
    rows = [row for file in files for row in file]
    for row in rows:
        assert pytest.approx(row["queue_ms"] + row["prefill_ms"]) == row["ttft_ms"]
        assert min(row["queue_ms"], row["prefill_ms"], row["decode_ms"]) >= 0
        assert 0 < row["ttft_ms"] + row["decode_ms"] < 1e3 * row["finished_at"]
        assert 1 <= row["running"] <= 4
        assert (0, "document", 1) == (row["preemptions"], row["stage"], row["attempt"])
    sampled = [row for row in rows if row["itl_p50"] is not None]
    assert ROWS / 16 <= len(sampled) < len(rows) / 4
    for row in sampled:
        assert 0 < row["itl_p50"] <= row["itl_p95"] <= row["decode_ms"]


def test_a_core_that_is_killed_is_started_again(bench: Bench, corpus: Path) -> None:
    """SIGKILL of vLLM's own process in the middle of the run: every row comes out, and the run says what happened."""
    process, children = started(bench, corpus)
    core_of(children).kill()
    out, err = process.communicate(timeout=200)
    assert 0 == process.returncode, err
    said = json.loads(out.strip().splitlines()[-1])
    assert [ROWS, ROWS, 0] == [said["rows"][name] for name in ("ok", "computed", "failed")]
    assert "the engine died: the engine's process was killed (SIGKILL)" in err
    [path] = bench.home.glob("checkpoints/*/seed-0/corpora/*/runs/*.json")
    assert 1 == json.loads(path.read_bytes())["metrics"]["num_engine_deaths"]
    assert [] == psutil.wait_procs(children, timeout=15)[1]


@pytest.mark.proof
def test_a_core_that_is_stopped_is_killed_and_started_again(bench: Bench, corpus: Path) -> None:
    """SIGSTOP in the middle of the run: the rows that wait are named, every row comes out, and nothing is left."""
    set_engine(bench.home / "jobs" / "summarize.toml", stall_seconds=5)
    process, children = started(bench, corpus)
    core_of(children).suspend()
    out, err = process.communicate(timeout=400)
    assert 0 == process.returncode, err
    assert "the engine made no token for 5 s (engine.stall_seconds); it has " in err
    assert f"among them {corpus} row " in err
    assert "the engine died: the engine's process was killed (SIGKILL)" in err
    said = json.loads(out.strip().splitlines()[-1])
    assert [ROWS, ROWS, 0] == [said["rows"][name] for name in ("ok", "computed", "failed")]
    assert [] == psutil.wait_procs(children, timeout=15)[1]


def loading(bench: Bench, corpus: Path) -> "tuple[subprocess.Popen[str], list[psutil.Process]]":
    """A run whose core's process has begun, which is stopped; and the processes below the run."""
    process = bench.start("submit", corpus, "--json")
    deadline = time.monotonic() + 200
    while True:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no core was begun"
        children = psutil.Process(process.pid).children(recursive=True)
        for child in children:
            with suppress(psutil.Error):  # of what has ended meanwhile
                if "spawn_main" in " ".join(child.cmdline()):
                    child.suspend()
                    return process, children
        time.sleep(0.05)


@pytest.mark.proof
def test_a_core_that_is_stopped_while_it_loads_ends_the_run(bench: Bench, corpus: Path) -> None:
    """69 after `engine.load_seconds`, and nothing is left."""
    set_engine(bench.home / "jobs" / "summarize.toml", load_seconds=60)
    process, children = loading(bench, corpus)
    _, err = process.communicate(timeout=200)
    assert 69 == process.returncode, err
    assert "the engine was not loaded after 60 s (engine.load_seconds)" in err
    assert "Traceback" not in err
    assert [] == psutil.wait_procs(children, timeout=15)[1]


@pytest.mark.proof
def test_a_run_that_is_terminated_while_it_loads_leaves_no_process(bench: Bench, corpus: Path) -> None:
    """Not even one that had not yet bound itself to its parent, or is stopped."""
    process, children = loading(bench, corpus)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert 75 == process.returncode, err
    assert [] == psutil.wait_procs(children, timeout=15)[1]


@pytest.mark.proof
def test_a_core_that_outlives_its_run_is_named(bench: Bench, corpus: Path) -> None:
    """SIGKILL of a run whose core hangs before it could bind itself to its parent: all that is left is named, and
    what ends it is said.
    """
    process, children = loading(bench, corpus)
    process.kill()
    process.wait()
    [path] = bench.home.glob("checkpoints/*/seed-0/corpora/*/runs/*.json")
    [left] = [orphan for orphan in orphans() if orphan.run_id == path.stem]
    for process_id in left.process_ids:
        os.kill(process_id, signal.SIGKILL)
    assert set(left.process_ids) <= {child.pid for child in children}
    assert left.memory_bytes > 1 << 20
    assert [] == psutil.wait_procs(children, timeout=15)[1]
    assert path.stem not in {orphan.run_id for orphan in orphans()}
