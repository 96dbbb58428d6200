"""Real vLLM with the real model: killed half-way, resumed, and equal to an undisturbed run."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands import Bench
from tests.materials.readmes import readmes
from tests.materials.smollm2 import make_smollm2

pytestmark = pytest.mark.proof

HALF_WAY = 10  # of 24

SPEC = """
model = "{model}"

[output]
max_tokens = 24

[engine]
kind = "vllm"
dtype = "float32"
max_model_len = 2048
max_num_batched_tokens = 2048
max_num_seqs = 8

[engine.options]
own_process = {own_process}
"""


@pytest.fixture
def corpus(bench: Bench) -> Path:
    """24 READMEs, cut to a few hundred tokens each."""
    bench.model = make_smollm2()
    texts = [text[:1500] for _, _, text in readmes() if len(text) > 1500][:24]
    path = bench.home / "corpus.parquet"
    pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), path)
    return path


def write_spec(bench: Bench, *, own_process: bool) -> None:
    spec = SPEC.format(model=bench.model, own_process=str(own_process).lower())
    (bench.home / "jobs" / "summarize.toml").write_text(spec)


def wait_for_rows(bench: Bench, process: "subprocess.Popen[str]", number: int) -> None:
    """Until so many summaries are durable."""
    while num_kept(bench) < number:
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)


def num_kept(bench: Bench) -> int:
    return sum(int(pq.read_metadata(path).num_rows) for path in bench.segments())


def descendants(pid: int) -> list[psutil.Process]:
    found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
    return found


@pytest.mark.parametrize("own_process", [False, True], ids=["in-process", "own-process"])
def test_killed_half_way_and_resumed(own_process: bool, bench: Bench, corpus: Path) -> None:
    """Every summary equals that of an undisturbed run, and no process outlives the killed parent."""
    write_spec(bench, own_process=own_process)
    process = bench.start("submit", corpus, "--quiet")
    wait_for_rows(bench, process, HALF_WAY)
    children = descendants(process.pid)
    assert own_process == bool(children)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    gone, alive = psutil.wait_procs(children, timeout=10)
    assert [] == alive
    kept = num_kept(bench)
    assert 0 < kept < 24
    resumed = bench.start("submit", corpus, "--json")
    out, err = resumed.communicate(timeout=900)
    assert 0 == resumed.returncode, err
    rows = json.loads(out.splitlines()[-1])["rows"]
    assert [kept, 24 - kept, 24] == [rows["reused"], rows["computed"], rows["ok"]]
    straight = bench.start("submit", corpus, "--seed", "1", "-o", bench.home / "straight.parquet")
    _, err = straight.communicate(timeout=900)
    assert 0 == straight.returncode, err
    one, other = (bench.output(name) for name in ("corpus.summaries.parquet", "straight.parquet"))
    assert [row["summary"] for row in other] == [row["summary"] for row in one]
    print(
        f"killed after {kept} of 24 documents; resumed and straight summaries are equal; {len(gone)} processes gone"
    )


@pytest.mark.parametrize("own_process", [False, True], ids=["in-process", "own-process"])
def test_terminated_half_way(own_process: bool, bench: Bench, corpus: Path) -> None:
    """SIGTERM: 75 within seconds also inside a long step, what is finished is kept, nothing is left."""
    write_spec(bench, own_process=own_process)
    process = bench.start("submit", corpus, "--json")
    wait_for_rows(bench, process, 1)
    children = descendants(process.pid)
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    took = time.monotonic() - started
    assert 75 == process.returncode, err
    said = json.loads(out.splitlines()[-1])
    kept = num_kept(bench)
    assert ["interrupted", kept] == [said["state"], said["rows"]["computed"]]
    assert [] == psutil.wait_procs(children, timeout=10)[1]
    assert "Traceback" not in err
    print(f"SIGTERM: ended after {took:.1f} s with {kept} documents kept")
