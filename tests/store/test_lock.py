"""One run per corpus: the lock dies with its holder, and is not inherited."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from batchrun.errors import LockedError
from batchrun.store import lock
from batchrun.store.lock import RunLock, holder_of, turn
from tests.commands import Bench, texts

HOLDER = """
import os, sys, time
from pathlib import Path
from batchrun.store.lock import RunLock
lock = RunLock(Path(sys.argv[1]), "the-other-run")
if sys.argv[2] == "fork" and os.fork() == 0:
    time.sleep(60)
print("held", flush=True)
time.sleep(60)
"""


def start_holder(path: Path, mode: str = "plain") -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), mode],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert "held\n" == process.stdout.readline()
    return process


def kill(process: "subprocess.Popen[str]", *, group: bool = False) -> None:
    (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)
    process.wait()


def test_a_second_run_is_told_who_holds_it(tmp_path: Path) -> None:
    """The message names run, process and what to do."""
    path = tmp_path / "lock"
    process = start_holder(path)
    try:
        with pytest.raises(LockedError) as raised:
            RunLock(path, "mine")
        assert "run the-other-run" in raised.value.reason
        assert f"process {process.pid} on" in raised.value.reason
        assert f"kill -TERM {process.pid}" in raised.value.hint
        holder = holder_of(path)
        assert holder is not None
        assert "the-other-run" == holder.run_id
    finally:
        kill(process)


@pytest.mark.parametrize(
    ("written", "reason", "hint"),
    [
        (
            '{"run_id": "far", "pid": 7, "host": "elsewhere", "since": "2026-11-29T22:00:00+00:00"}',
            "run far (process 7 on elsewhere), since 2026-11-",
            "kill -TERM 7 on elsewhere.",
        ),
        ("", "a run that has not said yet who it is", "kill -TERM its process."),
    ],
    ids=["of another host", "not yet written"],
)
def test_a_holder_is_told_as_far_as_it_is_known(written: str, reason: str, hint: str, tmp_path: Path) -> None:
    """On shared storage it may run elsewhere; and between taking a lock and writing its name there is a moment."""
    path = tmp_path / "lock"
    process = start_holder(path)
    try:
        path.write_text(written)
        with pytest.raises(LockedError) as raised:
            RunLock(path, "mine")
    finally:
        kill(process)
    assert reason in raised.value.reason
    assert hint in raised.value.hint


def test_the_lock_dies_with_its_holder(tmp_path: Path) -> None:
    """After SIGKILL it is free at once, without any flag."""
    path = tmp_path / "lock"
    kill(start_holder(path))
    assert holder_of(path) is None
    RunLock(path, "mine").release()


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A child that outlives its killed parent holds nothing."""
    path = tmp_path / "lock"
    process = start_holder(path, "fork")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    try:
        deadline = time.monotonic() + 5
        while holder_of(path) is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        RunLock(path, "mine").release()
    finally:
        os.killpg(process.pid, signal.SIGKILL)


def test_a_second_run_of_one_process_is_refused(tmp_path: Path) -> None:
    """Inside one process, too; and asking who holds it does not lose it."""
    path = tmp_path / "lock"
    lock = RunLock(path, "mine")
    assert holder_of(path) is not None
    with pytest.raises(LockedError):
        RunLock(path, "mine too")
    assert holder_of(path) is not None
    lock.release()
    assert holder_of(path) is None
    lock.release()
    RunLock(path, "again").release()


def test_a_file_without_a_holder_is_free(tmp_path: Path) -> None:
    """A lock file that a dead run left is no lock."""
    path = tmp_path / "lock"
    path.write_text("not json")
    assert holder_of(path) is None


def test_a_barrier_keeps_newcomers_out(tmp_path: Path) -> None:
    """Who holds the barrier is alone: a newcomer gives its lock back, so that the next one is not refused for it."""
    path, barrier = tmp_path / "lock", tmp_path / "barrier"
    first = RunLock(path, "before", barrier=barrier)
    held = RunLock(barrier, "gc")
    first.release()
    with pytest.raises(LockedError) as raised:
        RunLock(path, "mine", barrier=barrier)
    assert "the files of this job are being collected" in raised.value.reason
    assert holder_of(path) is None
    held.release()
    RunLock(path, "mine", barrier=barrier).release()


def test_turns_do_not_mix(tmp_path: Path) -> None:
    """What several processes, and threads of one, read and write in their turns is as if one had done it all."""
    count = (
        "import sys; from pathlib import Path; from batchrun.store.lock import turn\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "folder = Path(sys.argv[1])\n"
        "def add(_):\n"
        "    with turn(folder / 'lock'):\n"
        "        number = int((folder / 'number').read_text())\n"
        "        (folder / 'number').write_text(str(number + 1))\n"
        "with ThreadPoolExecutor(2) as executor:\n"
        "    list(executor.map(add, range(500)))\n"
    )
    (tmp_path / "number").write_text("0")
    with turn(tmp_path / "lock"):
        counting = [subprocess.Popen([sys.executable, "-c", count, str(tmp_path)]) for _ in range(3)]
        time.sleep(1.0)
        assert "0" == (tmp_path / "number").read_text()
    assert [0, 0, 0] == [process.wait(60) for process in counting]
    assert "1500" == (tmp_path / "number").read_text()


def test_a_turn_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was stopped at its turn ends whoever waits, with 11 and what to do; its end lets the next go on."""
    path = tmp_path / "lock"
    monkeypatch.setattr(lock, "TURN_SECONDS", 0.2)
    script = f"import fcntl,sys; f=open({str(path)!r},'a'); fcntl.lockf(f,fcntl.LOCK_EX); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(LockedError, match="has had its turn"), turn(path):
            pass
        holder.kill()
        holder.wait()
        with turn(path):
            pass


def test_files_of_a_run_that_has_not_said_who_it_is_stay(bench: Bench) -> None:
    """Another machine may read the lock before the holder's name has come there."""
    bench.submit(bench.corpus(texts(3)))
    [corpus] = bench.home.glob("checkpoints/*/seed-0/corpora/*")
    unfinished = corpus.parent.parent / "segments" / ".tmp-another-1234"
    unfinished.touch()
    script = f"import fcntl; f=open({str(corpus / 'lock')!r},'r+b'); fcntl.lockf(f,fcntl.LOCK_EX); f.truncate(0); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        other = bench.corpus(texts(4), "other.parquet")
        assert 0 == bench.submit(other).code
        assert unfinished.exists()
        holder.kill()
        holder.wait()
        bench.submit(other)
    assert not unfinished.exists()
