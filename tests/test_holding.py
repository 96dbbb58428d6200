"""Who holds a corpus and how far it is; the lock is believed, not the record."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from batchrun.clock import duration, local_time, seconds_since
from batchrun.errors import LockedError
from batchrun.holding import holdings, how_far, percent_done, take_lock
from batchrun.run_record import BatchMetrics, RowCounts, RunRecord, RunState
from batchrun.selection import standing_runs
from batchrun.store.lock import RunLock
from batchrun.telemetry.run_records import RunLog, timestamp
from batchrun.workspace import CorpusPaths, Workspace
from tests.commands import Bench, texts

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def record(run_id: str = "mine", **values: Any) -> RunRecord:
    """Of a run that has done 999 of its 1,000 documents."""
    usual: dict[str, Any] = {
        "state": RunState.RUNNING,
        "started_at": timestamp(),
        "updated_at": timestamp(),
        "first_planned_at": timestamp(),
        "engine": "lead",
        "to_run": 1000,
        "rows": RowCounts(total=1200, computed=999),
        "metrics": BatchMetrics(seconds_to_completion=720.0),
    }
    return RunRecord(job_id="job-1", run_id=run_id, seed=0, corpus_id="abc", corpus=["c"], **usual | values)


def corpus(tmp_path: Path) -> CorpusPaths:
    return Workspace(home=tmp_path).job("job-1", 0).corpus("abc")


@contextmanager
def held(paths: CorpusPaths, run_id: str = "mine") -> Iterator[None]:
    lock = RunLock(paths.lock, run_id)
    try:
        yield
    finally:
        lock.release()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"first_planned_at": None, "to_run": 0, "engine": None}, "it plans its corpus"),
        ({"engine": None}, "it loads the model for 1,000 documents"),
        ({}, "999 of 1,000 documents done (99%), about 12 min left"),
        ({"metrics": BatchMetrics()}, "999 of 1,000 documents done (99%)"),
        ({"rows": RowCounts(computed=1000)}, "all of its 1,000 documents are done, it publishes"),
        (
            {"updated_at": "2026-01-01T00:00:00+00:00", "metrics": BatchMetrics()},
            "999 of 1,000 documents done (99%); no word of it for ",
        ),
    ],
)
def test_how_far_a_run_is(values: dict[str, Any], expected: str) -> None:
    """In each of its phases; and one whose record is old is told as such."""
    assert how_far(record(**values)).startswith(expected)


@pytest.mark.parametrize(
    ("done", "to_run", "expected"),
    [(0, 1000, 0.0), (1, 3, 33.3), (999_999, 1_000_000, 99.9), (7, 7, 100.0), (0, 0, 100.0)],
)
def test_what_is_not_all_is_never_100_percent(done: int, to_run: int, expected: float) -> None:
    """In tenths; a run with nothing to do has done it."""
    assert expected == percent_done(record(to_run=to_run, rows=RowCounts(computed=done)))


def test_a_second_run_is_told_since_when_and_how_far(tmp_path: Path) -> None:
    """The lock names the holder, its record the rest; without a record the lock is all there is."""
    paths = corpus(tmp_path)
    with held(paths):
        with pytest.raises(LockedError, match=r"by run mine \(process .* ago\nWait"):
            take_lock(paths, "another", barrier=tmp_path / "barrier")
        RunLog(paths.runs, record())
        with pytest.raises(LockedError) as raised:
            take_lock(paths, "another", barrier=tmp_path / "barrier")
        assert "since " in raised.value.reason
        assert raised.value.reason.endswith(" s ago: 999 of 1,000 documents done (99%), about 12 min left")
        [found] = holdings(Workspace(home=tmp_path))
        assert ("job-1", "mine", "mine") == (
            found.job_id,
            found.holder.run_id,
            found.record and found.record.run_id,
        )
    assert [] == holdings(Workspace(home=tmp_path))


def test_a_second_submit_names_holder_time_and_progress(bench: Bench) -> None:
    """11; the object of --json says the same."""
    path = bench.corpus(texts(3))
    job = bench.submit(path).json
    paths = (
        Workspace(home=bench.home)
        .job(job["job_id"], 0)
        .corpus(next(bench.home.glob("checkpoints/*/seed-0/corpora/*")).name)
    )
    with held(paths, job["run_id"]):
        refused = bench.submit(path)
    assert (11, 11) == (refused.code, refused.json["exit_code"])
    assert f"run {job['run_id']} (process " in refused.err
    assert " s ago: all of its 3 documents are done" in refused.err
    assert refused.json["stop_reason"] in refused.err


STATES = [
    # the last record's state, who holds the lock, what is shown
    ("running", None, "interrupted", "killed"),
    ("running", "mine", "running", None),
    ("running", "gc", "interrupted", "killed"),
    ("complete", None, "complete", None),
    ("complete", "mine", "running", None),  # its last seconds, in which its engine is closed
    ("complete", "gc", "complete", None),
    ("failed", "mine", "running", None),
]


@pytest.mark.parametrize(("state", "holder", "shown", "reason"), STATES)
def test_a_lock_is_believed_and_not_a_record(
    state: str, holder: str | None, shown: str, reason: str | None, tmp_path: Path
) -> None:
    """A run goes on while it holds its lock; a record that says `running` without it is of a run that died."""
    paths = corpus(tmp_path)
    RunLog(paths.runs, record(state=RunState(state), exit_code=None if state == "running" else 0))
    (paths.checkpoint.parents[2] / "job.json").write_text("{}")
    lock = RunLock(paths.lock, holder) if holder else None
    try:
        [run] = standing_runs(Workspace(home=tmp_path))
    finally:
        if lock is not None:
            lock.release()
    assert (shown, reason) == (run.state, run.stop_reason)
    assert (shown != "complete") == (run.exit_code is None)


def test_the_run_that_holds_the_lock_is_the_last_one(tmp_path: Path) -> None:
    """Also where the clock was set back between two runs."""
    paths = corpus(tmp_path)
    (paths.checkpoint.parents[2]).mkdir(parents=True)
    (paths.checkpoint.parents[2] / "job.json").write_text("{}")
    RunLog(paths.runs, record("before", state=RunState.COMPLETE, started_at="2099-01-01T00:00:00+00:00"))
    RunLog(paths.runs, replace(record(), started_at="2026-01-01T00:00:00+00:00"))
    with held(paths):
        [run] = standing_runs(Workspace(home=tmp_path))
    assert ("mine", "running") == (run.run_id, run.state)


def test_times_are_told_for_a_person() -> None:
    """Local, with the date of another day; a duration in its own unit; what is no time as it is."""
    moment = NOW - timedelta(minutes=62)
    assert 3720 == seconds_since(moment.isoformat(), NOW)
    assert 0 == seconds_since((NOW + timedelta(hours=1)).isoformat(), NOW)
    assert f"{moment.astimezone():%H:%M:%S}" == local_time(moment.isoformat(), NOW)
    days = NOW - timedelta(days=3)
    assert f"{days.astimezone():%Y-%m-%d %H:%M}" == local_time(days.isoformat(), NOW)
    assert ["unknown", 0.0] == [local_time("unknown"), seconds_since("unknown")]
    assert ["45 s", "62 min", "3 h 05 min"] == [duration(seconds) for seconds in (45, 3720, 11_100)]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (94.4, "1 min 34 s"),
        (120, "2 min"),
        (302, "5 min 02 s"),
        (599.4, "9 min 59 s"),
        (599.5, "10 min"),
        (634, "11 min"),
    ],
)
def test_below_ten_minutes_a_duration_has_its_seconds(seconds: float, expected: str) -> None:
    assert expected == duration(seconds)
