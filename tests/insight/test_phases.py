"""Time by phase, from timelines that are known to the second."""

from dataclasses import fields, replace
from typing import Any

import pyarrow as pa
import pytest

from batchrun.insight.course import course_of
from batchrun.insight.phases import Phases, phases_of, whole_seconds
from batchrun.profile import Profile, Subject
from batchrun.run_record import PhaseSeconds, RunRecord, RunState
from batchrun.telemetry.timeline import SCHEMA

PROFILE = Profile(
    of=Subject(engine="lead", engine_version="1", model="m", dtype="none", device="cpu"),
    prefill=((100, 1000.0),),
    decode=((1, 10.0), (10, 100.0)),
    max_num_batched_tokens=64,
)
RECORD = RunRecord(
    job_id="j",
    run_id="r",
    seed=0,
    corpus_id="c",
    corpus=[],
    state=RunState.COMPLETE,
    profile=PROFILE,
    seconds=PhaseSeconds(total=50.0, planning=2.0, loading=3.0, running=40.0, publishing=4.0),
)


def timeline(*rows: dict[str, Any]) -> pa.Table:
    """What a row does not say is as before, at first 0."""
    found: dict[str, Any] = dict.fromkeys(SCHEMA.names, 0)
    columns = []
    for row in rows:
        found = found | row
        columns.append(found)
    return pa.Table.from_pylist(columns, schema=SCHEMA)


KNOWN = timeline(
    {"seconds": 4.0, "waiting_prefill_tokens": 9000},  # the model is being loaded
    {"seconds": 15.0, "prefill_tokens": 5000, "running": 10, "idle_seconds": 2.0},  # 5 s of reading in 10
    {
        "seconds": 25.0,
        "decode_tokens": 300,
        "prefill_tokens": 6000,
        "waiting_prefill_tokens": 0,
    },  # 3 s and 1 s
    {"seconds": 35.0, "decode_tokens": 500},
    {"seconds": 45.0, "decode_tokens": 510, "running": 1},
)


def seconds(phases: Phases) -> dict[str, float]:
    return {field.name: round(getattr(phases, field.name), 6) for field in fields(phases)}


def test_time_is_shared_out_by_what_the_profile_says_of_the_tokens() -> None:
    """Reading and writing share an interval; idle and draining are taken off before; nothing is lost."""
    phases = phases_of(RECORD, KNOWN, 100)
    assert {
        "planning": 2.0,
        "loading": 3.0,
        "prefill_bound": 8.0 + 10 * 1 / 4,
        "decode_bound": 10 * 3 / 4,
        "computing": 0.0,
        "draining": 20.0,
        "idle": 2.0,
        "publishing": 4.0,
        "other": 1.0,
    } == seconds(phases)
    assert 50.0 == phases.total == whole_seconds(RECORD, has_own_clock=False)


def test_without_a_profile_reading_is_not_told_from_writing() -> None:
    phases = phases_of(replace(RECORD, profile=None), KNOWN, 100)
    assert [0, 0, 18.0, 20.0] == [
        phases.prefill_bound,
        phases.decode_bound,
        phases.computing,
        phases.draining,
    ]
    assert 50.0 == phases.total


def test_what_a_killed_run_lost_of_its_timeline_is_computing() -> None:
    phases = phases_of(RECORD, KNOWN.slice(0, 3), 100)
    assert [20.0, 0.0, 50.0] == [phases.computing, phases.draining, phases.total]
    assert 40.0 == phases_of(RECORD, SCHEMA.empty_table(), 100).computing


def test_an_interval_without_a_token_belongs_to_the_next_that_has_some() -> None:
    """The step was not over."""
    found = timeline(
        {"seconds": 5.0, "waiting_prefill_tokens": 9},
        {"seconds": 25.0},
        {"seconds": 45.0, "prefill_tokens": 10, "waiting_prefill_tokens": 0},
    )
    assert 40.0 == phases_of(RECORD, found, 100).prefill_bound


@pytest.mark.parametrize("total", [10.0, 500.0])
def test_by_a_clock_of_its_own_the_engine_is_never_idle(total: float) -> None:
    """The whole is the sum of the parts, however long the run took by the machine's clock."""
    record = replace(RECORD, seconds=replace(RECORD.seconds, total=total))
    phases = phases_of(record, KNOWN, 100, has_own_clock=True)
    assert [0.0, 0.0, 49.0] == [phases.idle, phases.other, phases.total]
    assert 49.0 == whole_seconds(record, has_own_clock=True)


def test_the_course_has_rates_by_window() -> None:
    """Tokens of a window by its length, and the time they take by the profile as its share of the ceiling."""
    course = course_of(RECORD, KNOWN, 100)
    assert [15.0, 25.0, 35.0, 45.0] == course.seconds
    assert [500.0, 100.0, 0.0, 0.0] == course.prefill_tokens_per_second
    assert [0.0, 30.0, 20.0, 1.0] == course.decode_tokens_per_second
    assert [0.5, 0.4, 0.2, 0.01] == pytest.approx(course.ceiling_share)  # ten ran until the last ended
    assert [] == course_of(RECORD, SCHEMA.empty_table(), 100).seconds
    assert [] == course_of(replace(RECORD, profile=None), KNOWN, 100).ceiling_share


def test_a_sample_right_after_another_makes_no_peak() -> None:
    """The last one of a run comes whenever the one before was."""
    found = pa.concat_tables([KNOWN, timeline({"seconds": 45.1, "decode_tokens": 900})])
    course = course_of(RECORD, found, 100)
    assert [15.0, 25.0, 35.0, 45.1] == course.seconds
    assert 400 / 10.1 == pytest.approx(course.decode_tokens_per_second[-1])


def test_a_long_night_is_drawn_in_as_many_windows_as_a_short_one() -> None:
    rows = [{"seconds": 5.0 + second / 50, "decode_tokens": second} for second in range(2000)]
    course = course_of(RECORD, timeline(*rows), 100)
    assert 100 <= len(course.seconds) <= 120
    assert 50 == pytest.approx(course.decode_tokens_per_second[50], 0.1)
