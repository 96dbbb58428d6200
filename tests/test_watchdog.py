"""An engine that hangs is noticed, named with what it has, killed where it can be, and the run goes on or ends."""

import threading
from collections.abc import Callable

import pytest

from batchrun.engines.base import EngineSnapshot
from batchrun.engines.lead import LeadEngine
from batchrun.records import Completion
from batchrun.watchdog import STEPS, Watchdog
from tests.commands import Bench, set_engine, texts


def make_watchdog(stall_seconds: float = 10.0) -> tuple[Watchdog, Callable[[float], None]]:
    now = [0.0]

    def pass_time(seconds: float) -> None:
        now[0] += seconds

    return Watchdog(stall_seconds, lambda: now[0]), pass_time


def test_no_token_for_too_long_is_a_stall() -> None:
    """While there is work in the engine; any count that moves is progress."""
    watchdog, pass_time = make_watchdog()
    for step in range(3):
        assert not watchdog.is_stalled(EngineSnapshot(running=4, num_steps=step))
        pass_time(0.9)
    pass_time(9.0)
    assert not watchdog.is_stalled(EngineSnapshot(running=4, num_steps=2))
    pass_time(1.0)
    assert watchdog.is_stalled(EngineSnapshot(running=4, num_steps=2))
    watchdog.restart()
    assert not watchdog.is_stalled(EngineSnapshot(running=4, num_steps=2))


def test_an_engine_without_work_is_not_stalled() -> None:
    """However long it waits for some."""
    watchdog, pass_time = make_watchdog()
    for _ in range(3):
        pass_time(100.0)
        assert not watchdog.is_stalled(EngineSnapshot())


def test_long_steps_are_no_stall() -> None:
    """Where steps take long a stall must take longer: many times the longest of them."""
    watchdog, pass_time = make_watchdog()
    for step in range(3):
        watchdog.is_stalled(EngineSnapshot(running=1, num_steps=step))
        pass_time(8.0)
    watchdog.is_stalled(EngineSnapshot(running=1, num_steps=3))
    assert STEPS * 8.0 == watchdog.limit
    pass_time(79.0)
    assert not watchdog.is_stalled(EngineSnapshot(running=1, num_steps=3))


def test_a_run_whose_engine_hangs_ends_resumable(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process it can not be killed: 75, with the rows that it has; what was finished is kept."""
    set_engine(bench.write_spec("prefill_tokens_per_s = 2000"), max_num_seqs=2, stall_seconds=3)
    step, released = LeadEngine.step, threading.Event()
    ended: list[Completion] = []

    def hangs(self: LeadEngine) -> list[Completion]:
        if len(ended) >= 3:
            released.wait(30)
            return []
        done = step(self)
        ended.extend(done)
        return done

    monkeypatch.setattr(LeadEngine, "step", hangs)
    corpus = bench.corpus(texts(12))
    done = bench.submit(corpus)
    released.set()
    assert 75 == done.code
    assert "made no token for" in done.err
    assert f"among them {corpus} row " in done.err
    assert 3 <= done.json["rows"]["computed"] < 12
    monkeypatch.setattr(LeadEngine, "step", step)
    assert 0 == bench.submit(corpus).code
