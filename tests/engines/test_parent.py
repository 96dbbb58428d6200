"""An engine's process is bound to the process, and the thread, that started it."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from batchrun.engines.parent import ERRORS_FILE, PARENT_PID, die_with_parent
from tests.engines import children
from tests.engines.children import PATIENCE_SECONDS, is_alive, start_child, wait_until


def test_a_child_dies_with_the_thread_that_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel watches the thread, not the process: the engine's thread has to live until `close`."""
    monkeypatch.setenv(PARENT_PID, str(os.getpid()))
    mark = tmp_path / "mark"
    started = []

    def start_and_wait() -> None:
        started.append(start_child(children.live, mark))
        wait_until(mark.exists)

    thread = threading.Thread(target=start_and_wait)
    thread.start()
    thread.join()
    assert mark.exists()
    started[0].join(PATIENCE_SECONDS)
    assert started[0].exitcode == -9


def test_a_child_leaves_the_process_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals to the group are for batchrun, which ends its engine in order."""
    monkeypatch.setenv(PARENT_PID, str(os.getpid()))
    mark = tmp_path / "mark"
    child = start_child(children.live, mark)
    assert wait_until(lambda: mark.exists() and bool(mark.read_text()))
    assert str(child.pid) == mark.read_text()
    child.kill()
    child.join()


def test_a_process_that_is_no_engine_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other users of vLLM, and batchrun's own process, load the plugin too: nothing happens to them."""
    group = os.getpgid(0)
    monkeypatch.delenv(PARENT_PID, raising=False)
    die_with_parent()
    monkeypatch.setenv(PARENT_PID, str(os.getpid()))
    die_with_parent()
    assert group == os.getpgid(0)


def test_an_engine_speaks_to_standard_error_and_leaves_its_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One line for each error, the exception's where there is one; standard output stays free for data."""
    errors = tmp_path / "errors"
    errors.touch()
    monkeypatch.setenv(PARENT_PID, str(os.getpid()))
    monkeypatch.setenv(ERRORS_FILE, str(errors))
    start_child(children.speak, tmp_path).join(PATIENCE_SECONDS)
    said = [json.loads(line) for line in errors.read_text().splitlines()]
    assert [("ValueError", "out of memory"), ("", "then this")] == [
        (one["type"], one["said"]) for one in said
    ]
    captured = capfd.readouterr()
    assert (captured.out, "not data" in captured.err) == ("", True)


def test_a_child_whose_parent_is_gone_ends_at_once(tmp_path: Path) -> None:
    """A parent killed while its engine still imports vLLM leaves an engine that ends when it is loaded."""
    mark = tmp_path / "mark"
    script = """
import os, sys, time
from pathlib import Path
from tests.engines import children
mark = Path(sys.argv[1])
os.environ["BATCHRUN_PARENT_PID"] = str(os.getpid())
children.start_child(children.bind_late, mark)
while not (mark.exists() and mark.read_text()):
    time.sleep(0.01)
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", script, str(mark)], check=True, timeout=60)
    child = int(mark.read_text())
    assert wait_until(lambda: not is_alive(child))
    assert not mark.with_suffix(".alive").exists()
