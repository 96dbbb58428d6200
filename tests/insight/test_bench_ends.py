"""`batchrun bench` that ends before its end keeps what is measured."""

import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from batchrun.engines.base import EngineConfig, EngineDeadError
from batchrun.engines.lead import LeadEngine
from batchrun.errors import ExitCode
from batchrun.insight.bench import BenchEnd, BenchReporter
from batchrun.insight.bench import bench as measure
from batchrun.insight.bench_cells import CacheState, CellStatus
from batchrun.insight.bench_plan import Matrix
from batchrun.job import open_job
from batchrun.records import Completion, ErrorType
from batchrun.window import Window
from batchrun.workspace import Workspace
from tests.commands import Bench as Workbench
from tests.insight.benches import read, run, write_spec


def measured_until(bench: Workbench, window: Window) -> BenchEnd:
    job = open_job(Workspace(home=bench.home), bench.home / "jobs" / "summarize.toml", name=None, seed=0)
    matrix = Matrix(inputs=(64,), outputs=(16,), concurrency=(1, 4), caches=(CacheState.COLD,))
    target = bench.home / "bench.parquet"
    return measure(job, matrix, output=target, window=window, reporter=BenchReporter())


def ticking(looks: int) -> Window:
    """A window that is over after so many looks at the clock."""
    start = datetime(2026, 11, 30, tzinfo=UTC)
    passed = iter(range(10**6))
    return Window(
        deadline=start + timedelta(seconds=looks), now=lambda: start + timedelta(seconds=next(passed))
    )


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        (100, [CellStatus.PARTIAL, CellStatus.PENDING]),
        (175, [CellStatus.MEASURED, CellStatus.PARTIAL]),
    ],
)
def test_the_end_of_the_window_keeps_what_is_measured(
    bench: Workbench, looks: int, expected: list[CellStatus]
) -> None:
    """Of a cell under way the requests that have ended; what is not begun stands in the file as pending. Exit 4."""
    write_spec(bench)
    end = measured_until(bench, ticking(looks))
    assert end.is_written
    found = read(bench)
    assert expected == [one.status for one in found.cells] == [one.status for one in end.cells]
    assert (ExitCode.WINDOW_OVER, "deadline") == (end.exit_code, end.stop_reason)
    for one in found.cells:
        assert (len(one.requests) in range(1, 8)) == (one.status is CellStatus.PARTIAL)
        assert (one.figures is None) == (one.status is CellStatus.PENDING)


def test_a_window_that_is_over_loads_nothing(bench: Workbench) -> None:
    """And speaks of measuring, not of a corpus to submit."""
    write_spec(bench)
    result = run(bench, "--time-budget", "0s")
    assert (4, "time_budget") == (result.code, result.json["stop_reason"])
    assert "the time is over before anything is measured" in result.err
    assert "ubmit" not in result.err
    assert not (bench.home / "bench.parquet").exists()


def test_what_was_measured_before_stays_until_something_is_measured(bench: Workbench) -> None:
    """Where no cell fits, which is no success, and where the window ends before the first request has ended."""
    write_spec(bench)
    assert 0 == run(bench, "--inputs", "64", "--outputs", "4", "--concurrency", "1").code
    target = bench.home / "bench.parquet"
    before = target.read_bytes()
    nothing = run(bench, "--inputs", "8K", "--outputs", "4,8", "--concurrency", "1")
    assert (2, before) == (nothing.code, target.read_bytes())
    assert (
        "none of 6 cells can be measured: 8,196 tokens do not fit engine.max_model_len 2,048;" in nothing.err
    )
    end = measured_until(bench, ticking(5))
    assert [CellStatus.PENDING, CellStatus.PENDING] == [one.status for one in end.cells]
    assert (ExitCode.WINDOW_OVER, False, before) == (end.exit_code, end.is_written, target.read_bytes())


class FailingEngine(LeadEngine):
    """Fails every request but the first."""

    num_completed = 0

    def step(self) -> list[Completion]:
        found = super().step()
        self.num_completed += len(found)
        if self.num_completed < 2:
            return found
        return [
            msgspec.structs.replace(one, error_type=ErrorType.ENGINE_ERROR, error="out of order")
            for one in found
        ]


def test_a_bench_of_which_every_request_fails_is_no_success(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_spec(bench)
    monkeypatch.setattr("batchrun.engines.start", FailingEngine)
    result = run(bench, "--inputs", "64", "--outputs", "4", "--concurrency", "1", "--cache", "cold")
    assert (69, None) == (result.code, result.json["output"]), result.err
    assert "stopped (8 of 8 requests failed: out of order): 0 of 1 cells are measured" in result.err
    assert not (bench.home / "bench.parquet").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_signal_keeps_what_is_measured(bench: Workbench, number: signal.Signals, code: int) -> None:
    """After the step under way, with the exit code of a run that was stopped so."""
    write_spec(bench, clock="real", prefill_tokens_per_s=10_000, decode_tokens_per_s=500)
    target = bench.home / "bench.parquet"
    words = ("--inputs", "64", "--outputs", "2,1K", "--concurrency", "1", "--cache", "cold")
    process = bench.start("bench", *words, "-o", target)
    until = time.monotonic() + 120
    while not (target.exists() and read(bench).cells[0].status is CellStatus.MEASURED):
        assert time.monotonic() < until
        time.sleep(0.1)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert code == process.returncode, err
    first, second = read(bench).cells
    assert (CellStatus.MEASURED, 8) == (first.status, len(first.requests))
    assert second.status in {CellStatus.PENDING, CellStatus.PARTIAL}
    assert f"stopped ({number.name}): 1 of 2 cells are measured, and kept in {target}" in err
    assert 3 == len(out.splitlines()) - len(second.requests[:1])


class MortalEngine(LeadEngine):
    """Dies after so many steps."""

    steps_left = 0

    def step(self) -> list[Completion]:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise EngineDeadError("out of memory")
        return super().step()


@pytest.fixture
def mortal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[MortalEngine]]:
    """Engines that die after so many steps, in place of any that would be started."""

    def arrange(steps: int) -> list[MortalEngine]:
        engines: list[MortalEngine] = []

        def start(config: EngineConfig) -> MortalEngine:
            engines.append(MortalEngine(config))
            engines[0].steps_left = steps
            return engines[0]

        monkeypatch.setattr("batchrun.engines.start", start)
        return engines

    return arrange


def test_the_death_of_the_engine_keeps_what_is_measured(
    bench: Workbench, mortal: Callable[[int], list[MortalEngine]]
) -> None:
    """Its cell is failed with the engine's words and what had ended; exit 75; the engine is closed."""
    write_spec(bench)
    engines = mortal(175)
    result = run(bench, "--inputs", "64", "--outputs", "16", "--concurrency", "1,4", "--cache", "cold")
    assert (75, "the engine died: out of memory") == (result.code, result.json["stop_reason"])
    first, second = read(bench).cells
    assert (CellStatus.MEASURED, CellStatus.FAILED) == (first.status, second.status)
    assert "the engine died: out of memory" == second.reason
    assert 0 < len(second.requests) < 8
    with pytest.raises(EngineDeadError, match="closed"):
        engines[0].add(None)  # type: ignore[arg-type]


def test_an_engine_that_does_not_run_leaves_no_file(
    bench: Workbench, mortal: Callable[[int], list[MortalEngine]]
) -> None:
    write_spec(bench)
    mortal(1)
    result = run(bench, "--inputs", "64", "--outputs", "16", "--cache", "cold")
    assert 69 == result.code
    assert "the engine does not run a prompt of 64 tokens: out of memory" in result.err
    assert [] == list(bench.home.glob("*.parquet"))


def test_an_engine_without_times_is_no_measurement(bench: Workbench) -> None:
    """The lead engine without rates takes no time; what to do is said."""
    result = run(bench, "--inputs", "64", "--outputs", "16", "--concurrency", "1")
    assert 69 == result.code
    assert "Give the lead engine rates in [engine.options]" in result.err
    assert [] == list(bench.home.glob("*.parquet"))
