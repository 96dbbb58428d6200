"""The window of time: when it ends, and how a run ends in it."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from batchrun.errors import UsageError, WindowOverError
from batchrun.window import DEADLINE, TIME_BUDGET, Window, parse_deadline, parse_duration, window_to_plan
from tests.commands import Bench, set_engine, texts
from tests.ledger import calls

BERLIN = ZoneInfo("Europe/Berlin")
SLOW = "prefill_tokens_per_s = 400\ndecode_tokens_per_s = 400"


def berlin(day: int, hour: int, minute: int = 0, month: int = 11) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("now", "given", "expected"),
    [
        (berlin(10, 22), "06:00", berlin(11, 6)),
        (berlin(11, 5, 59), "06:00", berlin(11, 6)),
        (berlin(11, 6), "06:00", berlin(11, 6)),  # over
        (berlin(11, 6, 1), "06:00", berlin(11, 6)),  # over: not a day from now
        (berlin(11, 17, 59), "6:00", berlin(11, 6)),
        (berlin(11, 18, 1), "06:00", berlin(12, 6)),
        (berlin(11, 0, 30), "23:00", berlin(10, 23)),  # over since before midnight
        (berlin(24, 22, month=10), "06:00", berlin(25, 6, month=10)),  # the night has an hour more
        (berlin(11, 22), "2026-11-12T06:00+00:00", datetime(2026, 11, 12, 6, tzinfo=UTC)),
    ],
)
def test_a_clock_time_is_the_next_unless_it_has_just_passed(
    now: datetime, given: str, expected: datetime
) -> None:
    """Less than twelve hours ago means that the window is over."""
    assert expected == parse_deadline(given, now)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("soon", "'soon' is no time"),
        ("25:00", "is no time"),
        ("2026-11-12T06:00", "has no time zone"),
    ],
)
def test_another_deadline_is_a_usage_error(given: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_deadline(given, berlin(11, 22))
    assert said in caught.value.reason
    assert "2026-11-11T06:00+01:00" in caught.value.hint


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("4h", 14400), ("90m", 5400), ("1h30m", 5400), ("45s", 45), ("45", 45), ("0.5h", 1800)],
)
def test_a_time_budget_is_hours_minutes_and_seconds(given: str, seconds: float) -> None:
    assert seconds == parse_duration(given)


@pytest.mark.parametrize("given", ["", "4x", "h", "-4h", "1h30"])
def test_another_budget_is_a_usage_error(given: str) -> None:
    with pytest.raises(UsageError, match="4h, 90m, 1h30m"):
        parse_duration(given)


@pytest.mark.parametrize(("hour", "day"), [(6, 12), (7, 12), (18, 12), (5, 11)])
def test_a_plan_is_for_the_next_occurrence_of_a_clock_time(hour: int, day: int) -> None:
    """Also where it has just passed: nothing is to be ended then."""
    now = berlin(11, hour)
    assert berlin(day, 6) == parse_deadline("06:00", now, over_for=timedelta(0))


@pytest.mark.parametrize(
    ("deadline", "time_budget"), [(None, "0"), (None, "0s"), ("2026-01-01T06:00+00:00", None), ("06:00", "0")]
)
def test_a_window_to_plan_for_has_time(deadline: str | None, time_budget: str | None) -> None:
    """Without it a command line is wrong; nothing is to be submitted again."""
    with pytest.raises(UsageError, match="no time in the window to plan for") as raised:
        window_to_plan(deadline, time_budget)
    assert "submit" not in raised.value.hint.lower()


def test_the_first_end_counts() -> None:
    """A deadline in an hour and a budget of half an hour; a clock that is set moves the deadline alone."""
    now = [berlin(11, 5)]
    window = Window(deadline=berlin(11, 6), budget=1800.0, now=lambda: now[0])
    assert TIME_BUDGET == window.stop_reason
    assert 1795 < window.seconds_left() <= 1800
    now[0] += timedelta(minutes=59)
    assert (DEADLINE, 60.0) == (window.stop_reason, window.seconds_left())
    now[0] += timedelta(minutes=2)
    with pytest.raises(WindowOverError, match="2026-11-11 06:00"):
        window.require_open()


def test_an_open_end_is_no_end() -> None:
    assert (False, float("inf")) == (Window().is_bounded, Window().seconds_left())


def test_after_the_deadline_nothing_is_begun(bench: Bench) -> None:
    """A scheduler's restart a minute after it: exit 4, before the corpus is looked at; the JSON says why."""
    a_minute_ago = datetime.now().astimezone() - timedelta(minutes=1)
    done = bench.submit(bench.home / "missing.parquet", "--deadline", f"{a_minute_ago:%H:%M}")
    assert 4 == done.code
    assert ("interrupted", "deadline", 4) == tuple(
        done.json[name] for name in ("state", "stop_reason", "exit_code")
    )
    assert "stopped: the window is over: it ended" in done.err
    assert "Submit again in the next window" in done.err


def test_a_run_ends_in_its_window_and_goes_on_in_the_next(bench: Bench) -> None:
    """What ran is finished and published, the rest is pending; the same submit does that and nothing twice."""
    set_engine(bench.write_spec(SLOW), max_num_seqs=4)
    corpus = bench.corpus(texts(400))
    started = time.monotonic()
    done = bench.submit(corpus, "--time-budget", "12s")
    assert time.monotonic() - started < 20.0
    rows = done.json["rows"]
    assert (4, "interrupted", "time_budget") == (done.code, done.json["state"], done.json["stop_reason"])
    assert 0 < rows["ok"] < 400
    assert (400, rows["ok"]) == (rows["total"], rows["computed"])
    assert rows["pending"] == sum(row["status"] == "pending" for row in bench.output())
    assert f"of 400 rows {rows['pending']} are pending" in done.err
    bench.write_spec("")
    again = bench.submit(corpus)
    assert (0, rows["pending"]) == (again.code, again.json["rows"]["computed"])


def test_nothing_is_loaded_for_a_window_that_has_no_time_to_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning left only what publication needs: what there is is published, and rows in are rows out."""
    monkeypatch.setattr("batchrun.window.PUBLISHING_SECONDS", 60.0)
    done = bench.submit(bench.corpus(texts(5)), "--time-budget", "59s")
    assert (4, 5) == (done.code, done.json["rows"]["pending"])
    assert 5 == len(bench.output())
    assert "loading the model" not in done.err


def test_planning_ends_with_the_window(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus that takes longer to read than there is time: exit 4, how far it came, and no output; the next submit
    plans from the beginning.
    """
    corpus = bench.corpus(texts(5))
    with monkeypatch.context() as late:
        late.setattr(Window, "require_open", lambda _: None)
        done = bench.submit(corpus, "--time-budget", "0.01s")
    assert (4, "interrupted", "time_budget") == tuple(
        done.json[name] for name in ("exit_code", "state", "stop_reason")
    )
    assert "when 5 rows were planned" in done.err
    assert not (bench.home / "corpus.summaries.parquet").exists()
    assert [0, 5] == [(again := bench.submit(corpus)).code, again.json["rows"]["computed"]]


@pytest.mark.parametrize(
    ("prefer", "first"), [("longest", [1, 3, 5]), ("shortest", [2, 4, 0]), ("order", [0, 1, 2])]
)
def test_what_is_preferred_goes_first(bench: Bench, prefer: str, first: list[int], tmp_path: Path) -> None:
    """By bucket, what begins alike together in each; or in the order of the input."""
    spec = bench.write_spec("")
    spec.write_text(spec.read_text() + "\n[buckets]\nedges = [100]\n")
    words = [
        f"{'z' if number == 0 else 'a'} {number} " + "word " * (200 if number % 2 else 20)
        for number in range(6)
    ]
    ledger = tmp_path / "ledger"
    process = bench.start("submit", bench.corpus(words), "--prefer", prefer, ledger=ledger)
    assert 0 == process.wait(60)
    rows = {row["input_hash"]: row["row"] for row in bench.output()}
    assert first == [rows[key] for key in calls(ledger)][:3]


def test_the_plan_says_how_much_fits(bench: Bench) -> None:
    """By the rate of the last run; before there is one it says how it comes to be known."""
    corpus = bench.corpus(texts(1000))
    unknown = bench.run("plan", corpus, "--time-budget", "1h")
    assert "how much fits is known after a first run" in unknown.out
    bench.write_spec(SLOW)
    bench.submit(bench.corpus(texts(10), "some.parquet"))
    little = bench.run("plan", corpus, "--time-budget", "15s", "--json").json
    assert 0 < little["fit"]["documents"] < little["counts"]["to_run"]
    assert "documents fit;" in bench.run("plan", corpus, "--time-budget", "15s").out
    assert "all fits, with " in bench.run("plan", corpus, "--time-budget", "1h").out


def test_the_moment_of_the_end_is_told() -> None:
    """A deadline is itself, a budget counts from now; none without an end, or with one that no calendar has."""
    now = datetime(2026, 11, 30, 22, 0, tzinfo=UTC)
    deadline = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)
    assert Window().ends_at is None
    assert "2026-12-01T06:00:00+00:00" == Window(deadline=deadline, now=lambda: now).ends_at
    budget = Window(deadline=deadline, budget=3600.0, now=lambda: now).ends_at
    assert budget is not None
    assert abs(datetime.fromisoformat(budget) - now - timedelta(hours=1)) < timedelta(seconds=60)
    assert Window(budget=1e13, now=lambda: now).ends_at is None
