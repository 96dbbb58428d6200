"""An engine that hangs while it loads: it is ended after `engine.load_seconds`, and the run with it."""

import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from batchrun.engines import parent, processes
from batchrun.engines.base import EngineConfig, EngineDeadError
from batchrun.engines.lead import LeadEngine
from batchrun.errors import EngineUnavailableError
from batchrun.records import Completion
from batchrun.worker.engine_keeper import LIVES
from tests.commands import Bench, set_engine, texts
from tests.engines import children

IN_THIS_PROCESS = """
import threading
from batchrun.cli.main import run
from batchrun.engines.lead import LeadEngine
LeadEngine.__init__ = lambda self, config: threading.Event().wait()
run()
"""


class Processes:
    """Loads as vLLM does: the engine is a process of its own, and what starts it waits until it is ready."""

    def __init__(self, folder: Path) -> None:
        self.begun: list[multiprocessing.process.BaseProcess] = []
        self._mark = folder / "mark"
        self._errors = folder / "errors"

    def load(self, config: EngineConfig) -> None:
        assert config.owner is not None
        self._errors.write_text('{"type": "", "said": "waiting for the other ranks"}\n')
        values = {parent.PARENT_PID: str(os.getpid()), parent.ERRORS_FILE: str(self._errors)}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (values | processes.mark(config.owner)).items():
                patch.setenv(name, value)
            self.begun.append(children.start_child(children.live, self._mark))
        self.begun[-1].join()
        raise EngineUnavailableError("its process has ended", "Start it again.")


@pytest.fixture
def own_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Processes:
    found = Processes(tmp_path)
    monkeypatch.setattr(LeadEngine, "__init__", lambda _, config: found.load(config))
    return found


def test_a_load_that_hangs_is_ended_with_its_process(bench: Bench, own_process: Processes) -> None:
    """69, with the key that bounds it and the last that the engine said; nothing is left running."""
    set_engine(bench.write_spec(), load_seconds=2)
    done = bench.submit(bench.corpus(texts(5)))
    assert 69 == done.code
    assert "the engine was not loaded after 2 s (engine.load_seconds)" in done.err
    assert "the last error that it told of: waiting for the other ranks" in done.err
    assert "Raise engine.load_seconds" in done.err
    [process] = own_process.begun
    process.join(children.PATIENCE_SECONDS)
    assert -9 == process.exitcode


def test_a_run_whose_load_hangs_in_its_own_process_ends(bench: Bench) -> None:
    """The thread that hangs can not be ended; the process ends all the same, with 69."""
    set_engine(bench.write_spec(), load_seconds=1)
    words = [sys.executable, "-c", IN_THIS_PROCESS, "submit", bench.corpus(texts(5)), "--home", bench.home]
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=60, check=False
    )
    assert 69 == done.returncode, done.stderr
    assert "not loaded after 1 s" in done.stderr


def test_a_load_that_hangs_after_a_death_ends_the_run_resumable(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """75, and what was finished before the death is kept."""
    set_engine(bench.write_spec(), max_num_seqs=2, load_seconds=1)
    load, step, released = LeadEngine.__init__, LeadEngine.step, threading.Event()
    engines: list[LeadEngine] = []
    ended: list[Completion] = []

    def load_once(self: LeadEngine, config: EngineConfig) -> None:
        if engines:
            released.wait(30)
        engines.append(self)
        load(self, config)

    def die_late(self: LeadEngine) -> list[Completion]:
        if len(ended) >= 4:
            raise EngineDeadError("killed")
        ended.extend(done := step(self))
        return done

    monkeypatch.setattr(LeadEngine, "__init__", load_once)
    monkeypatch.setattr(LeadEngine, "step", die_late)
    corpus = bench.corpus(texts(12))
    done = bench.submit(corpus)
    released.set()
    assert 75 == done.code
    assert "the engine was not loaded again after 1 s (engine.load_seconds)" in done.err
    assert 4 == done.json["rows"]["computed"]
    monkeypatch.undo()
    assert 0 == bench.submit(corpus).code


def test_engines_that_load_for_longer_than_they_run_end_the_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each finishes documents and dies: 75 with the reason, and the next submit goes on from what they finished."""
    set_engine(bench.write_spec(), max_num_seqs=1)
    load, step = LeadEngine.__init__, LeadEngine.step
    lives: list[int] = []

    def slowly(self: LeadEngine, config: EngineConfig) -> None:
        threading.Event().wait(0.3)
        lives.append(0)
        load(self, config)

    def briefly(self: LeadEngine) -> list[Completion]:
        if lives[-1] == 2:
            raise EngineDeadError("killed")
        lives[-1] += len(done := step(self))
        return done

    monkeypatch.setattr(LeadEngine, "__init__", slowly)
    monkeypatch.setattr(LeadEngine, "step", briefly)
    corpus = bench.corpus(texts(60))
    done = bench.submit(corpus)
    assert 75 == done.code
    assert f"the engine died: killed; the last {LIVES} engines all died, and took " in done.err
    assert LIVES == len(lives)
    assert 2 * LIVES <= done.json["rows"]["computed"] < 60
    assert done.json["seconds"]["loading"] > 0.3 * LIVES > done.json["seconds"]["running"]
    monkeypatch.undo()
    assert 0 == bench.submit(corpus).code
