"""Clocks that are set: between runs and during one. What came last is what began last, whatever the time says."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from batchrun import api, collection, progress, runner, usage, window
from batchrun.engines.lead import LeadEngine
from batchrun.records import Completion
from batchrun.run_record import RunRecord
from batchrun.store import lock
from batchrun.telemetry import run_records
from tests.commands import Bench, set_engine, texts

SetClock = Callable[[timedelta], None]


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Put the wall clock of all of batchrun so far from the true time."""
    shift = timedelta()

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> "Shifted":
            moment = datetime.now(tz) + shift
            return cls.combine(moment.date(), moment.timetz())

    for module in (api, collection, lock, progress, run_records, runner, usage, window):
        monkeypatch.setattr(module, "datetime", Shifted)

    def put(by: timedelta) -> None:
        nonlocal shift
        shift = by

    return put


def stepping(then: Callable[[], None]) -> Callable[[LeadEngine], list[Completion]]:
    """A step of the engine that does something before the third."""
    real, num_steps = LeadEngine.step, 0

    def step(engine: LeadEngine) -> list[Completion]:
        nonlocal num_steps
        num_steps += 1
        if num_steps == 3:
            then()
        return real(engine)

    return step


@pytest.mark.parametrize("days", [-400, -1, 400])
def test_the_last_run_is_the_last_that_began(bench: Bench, set_clock: SetClock, days: int) -> None:
    """`status`, `resume` and the count of departures go by it, and `gc` keeps what either clock calls recent."""
    set_clock(timedelta(days=max(0, days)))
    corpus = bench.corpus(texts(8))
    first = bench.submit(corpus, "-o", bench.home / "first.parquet").json
    set_clock(timedelta(days=min(0, days)))
    bench.corpus(texts(10)[1:])
    second = bench.submit(corpus, "-o", bench.home / "second.parquet")
    assert (0, 2, 1) == (second.code, second.json["rows"]["computed"], departed(bench))
    set_clock(timedelta())
    [told] = bench.run("status", "--json").json
    assert second.json["run_id"] == told["run_id"] != first["run_id"]
    assert [1, 2] == sorted(run.number for run in runs(bench))
    resumed = bench.run("resume", told["job_id"], "--json")
    assert (0, second.json["output"]) == (resumed.code, resumed.json["output"])
    assert 0 == bench.run("verify", told["job_id"]).code
    assert 0 == bench.run("gc", "--older-than", "30", "--yes").code
    again = bench.submit(corpus)
    assert "unchanged since it was planned" in again.err
    assert 0 == again.json["rows"]["computed"]


def departed(bench: Bench) -> int:
    return runs(bench)[-1].rows.departed


def runs(bench: Bench) -> list[RunRecord]:
    [folder] = bench.home.glob("checkpoints/*/seed-0/corpora/*/runs")
    return run_records.read_runs(folder)


def test_a_plan_made_after_the_last_run_keeps_its_spool(bench: Bench, set_clock: SetClock) -> None:
    """Also where the clock was set back before it was planned: nobody has run it yet."""
    corpus = bench.corpus(texts(4))
    bench.submit(corpus)
    set_clock(timedelta(days=-2))
    bench.corpus(texts(6))
    bench.run("plan", corpus)
    set_clock(timedelta())
    bench.run("gc", "--yes")
    assert [path for path in bench.home.glob("buckets/*/seed-0/*/*/part-*") if path.stat().st_size]


def test_a_clock_set_past_the_deadline_ends_the_window(
    bench: Bench, set_clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 4 with what is finished; the next submit goes on."""
    corpus = slow_corpus(bench)
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    with monkeypatch.context() as patch:
        patch.setattr(LeadEngine, "step", stepping(lambda: set_clock(timedelta(hours=2))))
        ended = bench.submit(corpus, "--deadline", until)
    assert (4, "deadline") == (ended.code, ended.json["stop_reason"]), ended.err
    assert 0 < ended.json["rows"]["pending"]
    bench.write_spec()
    assert 0 == bench.submit(corpus).code


@pytest.mark.parametrize("days", [-3, 3])
def test_a_clock_set_during_a_run_moves_no_time_budget(
    bench: Bench, set_clock: SetClock, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """Nor any other time that is counted; nothing of the run is negative, and it can be read and verified."""
    set_engine(bench.home / "jobs" / "summarize.toml", max_num_seqs=2)
    corpus = bench.corpus(texts(12))
    with monkeypatch.context() as patch:
        patch.setattr(LeadEngine, "step", stepping(lambda: set_clock(timedelta(days=days))))
        done = bench.submit(corpus, "--time-budget", "1h")
    assert (0, 12) == (done.code, done.json["rows"]["ok"])
    assert all(0 <= seconds < 600 for seconds in done.json["seconds"].values())
    set_clock(timedelta())
    assert [0, 0] == [bench.run(*words, done.json["job_id"]).code for words in (["status"], ["verify"])]
    again = bench.submit(corpus)
    assert (0, 12, 0) == (again.code, again.json["rows"]["reused"], again.json["rows"]["computed"])


def slow_corpus(bench: Bench) -> Path:
    """Of some ten seconds."""
    corpus = bench.corpus(texts(60))
    set_engine(bench.home / "jobs" / "summarize.toml", max_num_seqs=2)
    with (bench.home / "jobs" / "summarize.toml").open("a") as spec:
        spec.write("\nprefill_tokens_per_s = 400\n")
    return corpus


def test_shards_stand_by_the_order_of_their_runs(bench: Bench, set_clock: SetClock) -> None:
    """A machine whose clock is two days ahead planned first: its shard is complete, the corpus that grew since is the
    newest, and a row that is lost is found.
    """
    corpus = bench.corpus(texts(12))
    set_clock(timedelta(days=2))
    bench.submit(corpus, "--shard", "1/2")
    set_clock(timedelta())
    bench.submit(corpus, "--shard", "2/2")
    joined = bench.run("results", "summarize", "-o", bench.home / "joined.parquet", "--json").json
    assert ["complete"] * 2 == [shard["state"] for shard in joined["shards"]]
    bench.corpus(texts(20))
    bench.submit(corpus, "--shard", "2/2")
    joined = bench.run("results", "summarize", "-o", bench.home / "joined.parquet", "--json").json
    assert ["outdated", "complete"] == [shard["state"] for shard in joined["shards"]]
    assert 20 == joined["rows"]["total"]
    bench.submit(corpus, "--shard", "1/2")
    for path in bench.segments():
        path.unlink()
    verified = bench.run("verify", "summarize")
    assert 75 == verified.code
    assert {"1/2", "2/2"} <= {word for word in verified.err.split() if "/2" in word}
