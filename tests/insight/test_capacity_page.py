"""What `batchrun capacity` says of a load that is made up, and how wide."""

from dataclasses import replace
from typing import Any

import pytest

from batchrun.cli.capacity_page import render
from batchrun.insight.capacity import Capacity, Found, KVPeak, Question, capacity
from batchrun.insight.load import LengthClass, Load
from batchrun.insight.replicas import Overhead
from batchrun.insight.speed import Speed, Took
from batchrun.planning.work import WorkOutline
from batchrun.profile import Profile, Subject
from batchrun.spec import JobSpec

SUBJECT = Subject(engine="lead", engine_version="1", model="m", dtype="none", device="cpu")
PROFILE = Profile(
    of=SUBJECT,
    prefill=((64, 1000.0), (8192, 1000.0)),
    decode=((1, 10.0), (32, 200.0)),
    max_num_batched_tokens=512,
)
SPEED = Speed(profile=PROFILE, longest=4000, running=32)
LOAD = Load(
    classes=tuple(
        LengthClass(shortest=shortest, documents=documents, tokens=documents * shortest * 1.1)
        for shortest, documents in ((64, 3000), (1024, 2000), (2048, 1000), (3584, 600))
    ),
    outputs=((20, 3000), (40, 2600), (500, 1000)),
    output_tokens=100.0,
    outputs_known=True,
)
OUTLINE: WorkOutline = LOAD.outline(JobSpec(model="m"), 4000)


def told(window: float | None = None, **changes: Any) -> Capacity:
    found = Found(
        job_id="summarize-1f2e3d4c",
        of="plan of corpus.parquet",
        load=LOAD,
        outline=OUTLINE,
        speed=SPEED,
        overhead=Overhead(planning=2.0, loading=30.0, publishing=0.0, is_planned=True),
        basis="times by the profile",
        by_profile=Took(seconds=100.0),
        totals=[(0.0, 0.0, 0.0), (900.0, 9000.0, 3000.0)],
        kv=KVPeak(tokens=9000, kv_tokens=10_000, sequences=32, at_seconds=72.0),
    )
    return capacity(replace(found, **changes), Question(window_seconds=window, ends="2026-12-01 06:00 UTC"))


def page(
    columns: int, monkeypatch: pytest.MonkeyPatch, window: float | None = None, **changes: Any
) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    return render(told(window, **changes)).splitlines()


@pytest.mark.parametrize("columns", [40, 80, 100])
@pytest.mark.parametrize("window", [None, 600.0, 5000.0])
def test_no_line_is_wider_than_the_terminal(
    columns: int, window: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost: each figure of a wide page stands in a narrow one."""
    lines = page(columns, monkeypatch, window)
    assert columns >= max(map(len, lines))
    whole = " ".join(page(200, monkeypatch, window)).split()
    numbers = {word.strip(",;:()") for word in whole if word[:1].isdecimal()}
    assert set() == numbers - {word.strip(",;:()") for line in lines for word in line.split()}


def test_minutes_of_the_window_are_all_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there for running and what stands beside it is the window."""
    window = 3600.0
    found = told(window)
    assert found.excess is not None
    beside = found.overhead.of(1) + found.stay_seconds
    assert window == pytest.approx(found.excess.seconds + beside)
    assert 500 * 32 / 200 == found.stay_seconds
    assert "publishing 0 s, and 80 s until the last output has ended" in "\n".join(page(110, monkeypatch))


def test_one_window_has_no_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told as what it is; of several the mean is that of a whole one, and where all are is said."""
    short = page(110, monkeypatch, totals=[(0.0, 0.0, 0.0), (94.0, 900.0, 300.0)])
    assert "tokens in one window of 1 min 34 s, which is shorter than 5 min: prefill 900, decode 300" in short
    several = page(110, monkeypatch, totals=[(0.0, 0.0, 0.0), (330.0, 3300.0, 660.0)])
    assert ["prefill", "3,000", "3,000", "after", "0", "s"] in [line.split() for line in several]
    assert "  all 2 windows: --json" in several


def test_what_lost_replicas_are_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(page(110, monkeypatch))
    for head in ("one lost, replaced", "not replaced", "left then"):
        assert head in text
    assert 'Lost: one is gone half-way. "Replaced":' in text


def test_a_limit_that_cuts_half_is_no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window for nearly nothing is met by no limit; one for nine tenths is."""
    hardly = told(600.0).excess
    assert hardly is not None
    assert (None, None, None) == (hardly.leave_out, hardly.truncate, hardly.output)
    lines = page(110, monkeypatch, 600.0)
    for kind in ("of the documents left out", "of the inputs cut", "of the outputs cut"):
        assert f"  it does not fit with under half {kind}" in lines
    nearly = told(9500.0).excess
    assert nearly is not None
    assert nearly.leave_out is not None
    assert nearly.truncate is not None
    assert nearly.output is not None
    assert nearly.output.share < 0.5
    assert nearly.leave_out.documents < LOAD.documents / 2


def test_a_peak_is_told_as_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the sequences where a sample was taken then; else by when it was."""
    seen = "KV cache at its peak: 9,000 tokens of 10,000 (90%), after 72 s, with 32 sequences"
    assert seen in page(110, monkeypatch)
    kv = KVPeak(tokens=9000, kv_tokens=10_000, sequences=None, at_seconds=72.0)
    assert "KV cache at its peak: 9,000 tokens of 10,000 (90%), by 72 s" in page(110, monkeypatch, kv=kv)


@pytest.mark.parametrize(
    ("changes", "doubt"),
    [
        ({}, None),
        ({"running": 33}, "the profile covers 32 sequences at once, and 33 ran"),
        ({"factor": 0.7}, None),
        ({"factor": 0.5}, "the run was 2.0 times as fast as the profile says that the engine can be"),
        ({"profile": None, "factor": 0.1}, None),
    ],
)
def test_a_profile_that_does_not_cover_a_run_is_doubted(changes: dict[str, Any], doubt: str | None) -> None:
    assert doubt == replace(SPEED, **changes).doubt
