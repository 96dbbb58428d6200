"""What is left of the engine of a run that is over is named, with what it holds and what ends it; what lives is not."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from batchrun.engines import parent, processes
from batchrun.engines.base import Owner
from batchrun.orphans import Orphan, orphans
from batchrun.store.lock import RunLock
from tests.commands import Bench, texts

HELD_BYTES = 200 << 20
HOLD = f"held = bytearray(b'1') * {HELD_BYTES}\nprint(flush=True)\ninput()"
LOCK = """
import sys
from pathlib import Path
from batchrun.store.lock import RunLock
lock = RunLock(Path(sys.argv[1]), sys.argv[2])
print(flush=True)
input()
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a program, and returns when it is ready; it ends with the test."""
    begun: list[subprocess.Popen[str]] = []

    def start(program: str, *words: object, **environment: str) -> "subprocess.Popen[str]":
        line = [sys.executable, "-c", program, *map(str, words)]
        pipe = subprocess.PIPE
        begun.append(subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True, env=os.environ | environment))
        assert begun[-1].stdout is not None
        begun[-1].stdout.readline()
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.communicate()


@pytest.fixture
def gone() -> str:
    """The id of a process that has ended."""
    return subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    ).stdout.strip()


def marked(lock: Path, starter: str, run_id: str = "20261130T000000-abcdef") -> dict[str, str]:
    return {parent.PARENT_PID: starter} | processes.mark(Owner(run_id=run_id, lock=lock))


def found() -> list[Orphan]:
    """Those that carry one of the test's marks: others may run on this machine."""
    return [one for one in orphans() if one.run_id.endswith("abcdef")]


def test_a_process_of_a_run_that_is_over_is_named_with_its_memory(
    tmp_path: Path, start: Start, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes of one run in one record, with what NVML knows of them."""
    lock = tmp_path / "lock"
    RunLock(lock, "20261130T000000-abcdef").release()
    first, second = (start(HOLD, **marked(lock, gone)) for _ in range(2))
    monkeypatch.setattr("batchrun.orphans.memory_by_process", lambda: {first.pid: 3 << 30, 1: 9 << 30})
    [orphan] = found()
    assert {first.pid, second.pid} == set(orphan.process_ids)
    assert 2 * HELD_BYTES < orphan.memory_bytes < 4 * HELD_BYTES
    assert 3 << 30 == orphan.gpu_memory_bytes
    assert "run 20261130T000000-abcdef, which is over, still holds 0." in str(orphan)
    assert "and 3.00 GiB of GPU memory" in str(orphan)
    assert f"kill -9 {' '.join(map(str, orphan.process_ids))}" in orphan.hint


def test_a_run_whose_lock_is_held_has_no_orphans(tmp_path: Path, start: Start, gone: str) -> None:
    """By a living process, for that run; once another run holds the lock, what the first left is one."""
    lock = tmp_path / "lock"
    start(HOLD, **marked(lock, gone))
    holder = start(LOCK, lock, "20261130T000000-abcdef")
    assert [] == found()
    holder.kill()
    holder.wait()
    assert 1 == len(found())
    start(LOCK, lock, "20261130T999999-another")
    assert 1 == len(found())


def test_an_engine_below_the_process_that_began_it_is_no_orphan(tmp_path: Path, start: Start) -> None:
    """Whatever its lock says: it is that process' to end."""
    start(HOLD, **marked(tmp_path / "lock", str(os.getpid())))
    assert [] == found()


def test_a_run_names_what_the_run_before_it_left(bench: Bench, start: Start, gone: str) -> None:
    """Though it holds that run's lock by then; the record keeps it, and nothing is killed."""
    corpus = bench.corpus(texts(5))
    before = bench.submit(corpus).json["run_id"]
    [lock] = bench.home.glob("checkpoints/*/seed-0/corpora/*/lock")
    left = start(HOLD, **marked(lock, gone, before))
    done = bench.submit(corpus)
    assert 0 == done.code
    assert f"the engine of run {before}, which is over, still holds 0.2" in done.err
    assert f"kill -9 {left.pid}" in done.err
    assert f"kill -9 {left.pid}" in (lock.parent / "runs" / f"{done.json['run_id']}.json").read_text()
    assert None is left.poll()


def test_the_doctor_names_them_too(bench: Bench, start: Start, gone: str) -> None:
    """With what ends them, among what to change."""
    left = start(HOLD, **marked(bench.home / "lock", gone))
    told = bench.run("doctor")
    assert "which is over, still holds" in told.out + told.err
    assert f"kill -9 {left.pid}" in told.out + told.err
