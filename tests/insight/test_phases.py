"""Time by phase, from timelines that are known to the second."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from batchrun.insight.course import Course, course_of
from batchrun.insight.division import Division, divide
from batchrun.insight.phases import Phases, phases_of, whole_seconds
from batchrun.insight.time_use import time_use
from batchrun.profile import Profile, Subject
from batchrun.run_record import PhaseSeconds, RunRecord, RunState
from batchrun.telemetry.timeline import SCHEMA
from tests.insight.test_time_use import steps_of_reading_and_writing

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
    """What a row does not say is as before, at first 0; but a step ended with each, and the engine was there from the
    fifth second on.
    """
    found: dict[str, Any] = dict.fromkeys(SCHEMA.names, 0)
    columns = []
    for number, row in enumerate(rows):
        found = found | {"running_seconds": max(0.0, row["seconds"] - 5.0), "num_steps": number} | row
        columns.append(found)
    return pa.Table.from_pylist(columns, schema=SCHEMA)


def phases_by(samples: pa.Table, record: RunRecord = RECORD, *, has_own_clock: bool = False) -> Phases:
    return phases_of(
        record, divided(samples, record, has_own_clock=has_own_clock), has_own_clock=has_own_clock
    )


def course_by(samples: pa.Table, record: RunRecord = RECORD) -> Course:
    return course_of(samples, divided(samples, record))


def divided(samples: pa.Table, record: RunRecord = RECORD, *, has_own_clock: bool = False) -> Division:
    return divide(
        samples, max_num_seqs=10, profile=record.profile, input_tokens=100, has_own_clock=has_own_clock
    )


KNOWN = timeline(
    {"seconds": 4.0, "waiting_prefill_tokens": 9000},  # the model is being loaded
    {"seconds": 15.0, "prefill_tokens": 5000, "running": 10, "idle_seconds": 2.0},  # 5 s of reading in 10
    {
        "seconds": 25.0,
        "decode_tokens": 300,
        "prefill_tokens": 6000,
        "waiting_prefill_tokens": 0,
    },  # 3 s and 1 s
    {"seconds": 35.0, "decode_tokens": 500},  # 2 s, of as many sequences as before
    {
        "seconds": 45.0,
        "decode_tokens": 510,
        "running": 0,
        "num_steps": 13,
    },  # of ten steps, and five on average
)


def seconds(phases: Phases) -> dict[str, float]:
    return {field.name: round(getattr(phases, field.name), 6) for field in fields(phases)}


def test_time_is_shared_out_by_what_the_profile_says_of_the_tokens() -> None:
    """Idle and draining are taken off before; nothing is lost. Draining are places that stand empty: none while as many
    write as before, though nothing is read any more.
    """
    phases = phases_by(KNOWN)
    reading = 8 / 10 * 5 + 1
    writing = 3 + 2 + 5 / 10 * (10 / PROFILE.decode_rate(5))
    assert {
        "planning": 2.0,
        "loading": 3.0,
        "prefill_bound": round(33.0 * reading / (reading + writing), 6),
        "decode_bound": round(33.0 * writing / (reading + writing), 6),
        "computing": 0.0,
        "draining": 5.0,
        "idle": 2.0,
        "publishing": 4.0,
        "other": 1.0,
    } == seconds(phases)
    assert 50.0 == phases.total == whole_seconds(RECORD, has_own_clock=False)


def test_without_a_profile_a_short_night_does_not_tell_reading_from_writing() -> None:
    phases = phases_by(KNOWN, replace(RECORD, profile=None))
    assert [0, 0, 33.0, 5.0] == [
        phases.prefill_bound,
        phases.decode_bound,
        phases.computing,
        phases.draining,
    ]
    assert 50.0 == phases.total


def test_what_a_killed_run_lost_of_its_timeline_is_computing() -> None:
    phases = phases_by(KNOWN.slice(0, 3))
    assert [20.0, 0.0, 50.0] == [phases.computing, phases.draining, phases.total]
    assert 40.0 == phases_by(SCHEMA.empty_table()).computing


@pytest.mark.parametrize("left", [0, 777])
def test_what_drains_is_the_tail_of_the_diagnosis(left: int) -> None:
    """Also where the window ends before the work; and the page tells reading from writing where the diagnosis does."""
    samples = steps_of_reading_and_writing(2)
    number = samples.num_rows
    is_last = np.arange(number) > 0.8 * number
    columns = {name: samples[name] for name in SCHEMA.names}
    columns |= {
        "seconds": pa.array(5.0 + samples["running_seconds"].to_numpy()),
        "waiting": pa.array(np.where(is_last, 0, 8)),
        "waiting_prefill_tokens": pa.array(np.where(is_last, left, 10_000 - np.arange(number))),
        "running": pa.array(np.where(is_last, 5, 10)),
    }
    running = samples["running_seconds"].to_numpy()[-1]
    record = replace(RECORD, profile=None, seconds=replace(RECORD.seconds, running=running))
    found = divided(pa.table(columns, schema=SCHEMA), record)
    phases, used = phases_of(record, found), time_use(found)
    assert used is not None
    assert 0.1 == pytest.approx(used.tail, abs=0.01)
    assert used.tail * used.seconds == pytest.approx(phases.draining)
    assert [used.reading, used.writing, 0.0] == pytest.approx(
        [phases.prefill_bound / running, phases.decode_bound / running, phases.computing / running], abs=0.01
    )


@pytest.mark.parametrize("total", [10.0, 500.0])
def test_by_a_clock_of_its_own_the_engine_is_never_idle(total: float) -> None:
    """The whole is the sum of the parts, however long the run took by the machine's clock."""
    record = replace(RECORD, seconds=replace(RECORD.seconds, total=total))
    phases = phases_by(KNOWN, record, has_own_clock=True)
    assert [0.0, 0.0, 49.0] == [phases.idle, phases.other, phases.total]
    assert 49.0 == whole_seconds(record, has_own_clock=True)


def test_the_course_has_rates_by_window() -> None:
    """Tokens of a window by its length, and the time they take by the profile as its share of the ceiling."""
    course = course_by(KNOWN)
    assert [15.0, 25.0, 35.0, 45.0] == course.seconds
    assert [500.0, 100.0, 0.0, 0.0] == course.prefill_tokens_per_second
    assert [0.0, 30.0, 20.0, 1.0] == course.decode_tokens_per_second
    assert [0.5, 0.4, 0.2, 1 / PROFILE.decode_rate(5)] == pytest.approx(course.ceiling_share)
    assert 5.0 == course.begin_seconds
    assert [] == course_by(SCHEMA.empty_table()).seconds
    assert [] == course_by(KNOWN, replace(RECORD, profile=None)).ceiling_share


def test_a_sample_right_after_another_makes_no_peak() -> None:
    """The last one of a run comes whenever the one before was."""
    found = pa.concat_tables([KNOWN, timeline({"seconds": 45.1, "decode_tokens": 900, "num_steps": 14})])
    course = course_by(found)
    assert [15.0, 25.0, 35.0, 45.1] == course.seconds
    assert 400 / 10.1 == pytest.approx(course.decode_tokens_per_second[-1])


def test_a_window_ends_where_a_step_did() -> None:
    """A step of 15 s makes no peak in the half second of its end: it has its rate in one window of 15."""
    rows = [
        {
            "seconds": 5.0 + second / 2,
            "num_steps": second // 30,
            "prefill_tokens": 15_000 * (second // 30),
        }
        for second in range(1, 301)
    ]
    course = course_by(timeline(*rows))
    assert [20.0 + 15 * step for step in range(10)] == course.seconds
    assert [1000.0] * 10 == course.prefill_tokens_per_second
    assert [1.0] * 10 == pytest.approx(course.ceiling_share)


def test_the_time_in_which_an_engine_was_started_again_is_in_no_rate() -> None:
    """The window is as wide as it was, and its rate is that of the engine that was there."""
    found = timeline(
        {"seconds": 5.0},
        {"seconds": 15.0, "prefill_tokens": 1000},
        {"seconds": 85.0, "running_seconds": 20.0, "prefill_tokens": 2000},
        {"seconds": 95.0, "running_seconds": 30.0, "prefill_tokens": 3000},
    )
    course = course_by(found)
    assert [15.0, 85.0, 95.0] == course.seconds
    assert [100.0] * 3 == course.prefill_tokens_per_second


def test_a_long_night_is_drawn_in_as_many_windows_as_a_short_one() -> None:
    rows = [{"seconds": 5.0 + second / 50, "decode_tokens": second} for second in range(2000)]
    course = course_by(timeline(*rows))
    assert 100 <= len(course.seconds) <= 120
    assert 50 == pytest.approx(course.decode_tokens_per_second[50], 0.1)
