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

from tests.commands import Bench, texts

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
    assert any("EngineCore" in " ".join(child.cmdline()) + child.name() for child in children)
    return process, children


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
    [core] = [child for child in children if "EngineCore" in " ".join(child.cmdline()) + child.name()]
    core.kill()
    out, err = process.communicate(timeout=200)
    assert 0 == process.returncode, err
    said = json.loads(out.strip().splitlines()[-1])
    assert [ROWS, ROWS, 0] == [said["rows"][name] for name in ("ok", "computed", "failed")]
    assert "the engine died: the engine's process was killed (SIGKILL)" in err
    [path] = bench.home.glob("checkpoints/*/seed-0/corpora/*/runs/*.json")
    assert 1 == json.loads(path.read_bytes())["metrics"]["num_engine_deaths"]
    assert [] == psutil.wait_procs(children, timeout=15)[1]
