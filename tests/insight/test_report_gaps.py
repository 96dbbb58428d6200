"""A report of a run that has left less than all, or what is damaged."""

import json
from typing import Any

import pytest

from batchrun.errors import InterruptedRunError
from batchrun.insight import page as pages
from batchrun.store.lock import Holder
from tests.commands import Bench, texts
from tests.insight.pages import RATES, report
from tests.insight.reported import change_record, change_timeline, heading, remove, run_record, with_column


def test_without_request_telemetry_the_page_says_so(night: Bench) -> None:
    """Time of single documents is not known; lengths and quality are, of the corpus as it stands."""
    remove(night, "requests/*.parquet")
    page, result = report(night, "summarize")
    found = result.json
    assert "There is no request telemetry of this run" in page.text
    assert "What held it up" in page.text
    assert [] == found["lists"]["slowest"] == found["lists"]["expensive"]
    assert not found["documents"]["of_run"]
    assert 38 == found["documents"]["buckets"][0]["num_ok"]
    assert 38 == found["quality"][0]["num_summaries"]


def test_without_a_timeline_the_page_says_so(night: Bench) -> None:
    """Nothing is drawn over time; time by phase is told as far as the record has it."""
    remove(night, "timelines/*.parquet")
    page, result = report(night, "summarize")
    assert "There is no timeline of this run" in page.text
    found = result.json["phases"]
    assert found["computing"] == pytest.approx(result.json["record"]["seconds"]["running"])
    assert 0 == found["prefill_bound"]


def test_without_a_profile_the_page_says_what_to_do(bench: Bench) -> None:
    bench.write_spec(RATES)
    bench.submit(bench.corpus(texts(20)))
    page, result = report(bench, "summarize")
    assert "For the next one: batchrun calibrate" in page.text
    assert "computing, not told apart" in page.text
    assert "what single documents cost is not known" in page.text
    assert "The share of the work is not known" in page.text
    assert result.json["ceiling"] is None is result.json["time_basis"]
    assert [] == result.json["lists"]["expensive"]
    assert {None} == {one["machine_seconds"] for one in result.json["shown"]}
    assert None is result.json["documents"]["buckets"][0]["share"]


@pytest.mark.parametrize("live", [False, True])
def test_a_run_that_was_killed_or_goes_on(
    night: Bench, monkeypatch: pytest.MonkeyPatch, *, live: bool
) -> None:
    """A record that says `running` is believed while its lock is held."""
    path = run_record(night)
    record = json.loads(path.read_bytes()) | {"state": "running", "exit_code": None}
    record["rows"] |= {"computed": 20}
    path.write_text(json.dumps(record))
    if live:
        holder = Holder(run_id=record["run_id"], pid=1, host="here", since="2026-11-30T22:00:00+00:00")
        monkeypatch.setattr("batchrun.selection.holder_of", lambda _: holder)
    page, result = report(night, "summarize")
    assert ("The run goes on" if live else "The run was killed") in page.text
    assert ("running" if live else "interrupted") == result.json["state"]
    assert result.json["foretold"]["off_by"] is None
    assert "The prediction was for all that was to run, which did not all run." in page.text


def test_a_run_that_computed_nothing(night: Bench) -> None:
    """The same submit again: what is said of documents is said of the corpus, and the runs stand side by side."""
    first = run_record(night).stem
    idle = night.submit(night.home / "corpus.parquet", "--max-error-rate", "0.5").json["run_id"]
    page, result = report(night, idle)
    assert "This run has computed no document" in page.text
    assert "The last runs of this corpus" in page.text
    assert [38, 0] == [run["computed"] for run in result.json["nights"]]
    page, result = report(night, "summarize")
    assert [first, 38] == [result.json["run_id"], result.json["record"]["rows"]["computed"]]
    assert f"A later run of this corpus is {idle}, which computed nothing." in page.text
    elsewhere = night.submit(night.corpus(texts(3), "less.parquet")).json["run_id"]
    page, _ = report(night, "summarize")
    newest = "The newest run of this job, of another corpus or seed, is"
    assert f"{newest} {elsewhere}, which computed nothing." in page.text


def test_a_run_that_died_before_its_first_document(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a page, and it says what there is."""

    def die(*_: object) -> None:
        raise InterruptedRunError("the engine died", "Submit again.")

    monkeypatch.setattr("batchrun.engines.start", die)
    assert 75 == bench.submit(bench.corpus(texts(3))).code
    page, result = report(bench, "summarize")
    assert {"ok": 0, "failed": 0, "skipped": 0, "pending": 3} == result.json["rows"]
    assert "interrupted, exit code 75: the engine died" in page.text
    remove(bench, "plan.json")
    page, _ = report(bench, "summarize")
    assert "The corpus is not planned to its end" in page.text


def test_a_corpus_that_changed_has_no_coverage(night: Bench) -> None:
    night.corpus(texts(5))
    page, result = report(night, "summarize")
    assert "Extractive coverage is not measured: the corpus has changed since it was planned." in page.text
    assert {None} == {one["coverage"] for one in result.json["shown"]}
    assert 0 < result.json["quality"][0]["num_summaries"]


def test_of_a_large_corpus_the_first_rows_are_read(night: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coverage is that of the documents found there, and it is said of how many."""
    monkeypatch.setattr("batchrun.insight.sources.FIRST_ROWS", 12)
    page, result = report(night, "summarize")
    assert [38, 12] == [result.json["quality"][0][name] for name in ("num_summaries", "num_coverage")]
    assert "38 summaries, 12 of them with the document's text at hand" in page.text


def test_damage_is_said(night: Bench) -> None:
    """A damaged segment is passed over and left where it is; a damaged plan tells nothing of documents."""
    [segment] = night.segments()[:1]
    segment.write_bytes(segment.read_bytes()[:-9] + b"no Parquet")
    page, result = report(night, "summarize")
    assert f"segment {segment} is damaged" in page.text
    assert result.json["rows"]["pending"] > 0
    assert segment.exists()
    [plan] = night.home.glob("checkpoints/*/seed-0/corpora/*/carried.parquet")
    plan.write_bytes(b"no Parquet")
    page, result = report(night, "summarize")
    assert f"Nothing can be said of single documents: {plan} is damaged" in page.text
    assert 39 == result.json["rows"]["ok"]


@pytest.mark.parametrize("damaged", ["plan.parquet", "requests", "timelines", "run record"])
def test_a_file_that_was_cut_off_is_named(night: Bench, damaged: str) -> None:
    """The page is there, with what the other files tell."""
    _, before = report(night, "summarize")
    assert "damaged" not in "".join(before.json["notes"])
    if damaged == "run record":
        path = run_record(night).with_stem("20000101T000000-abcdef")
        path.write_bytes(run_record(night).read_bytes()[:-9])
    else:
        [path] = night.home.glob(
            f"checkpoints/*/seed-0/corpora/*/{damaged}{'' if '.' in damaged else '/*.parquet'}"
        )
        path.write_bytes(path.read_bytes()[:-40])
    page, result = report(night, "summarize")
    [note] = [note for note in result.json["notes"] if str(path) in note]
    assert "damaged" in note
    assert note in page.text
    assert "There is no" not in "".join(result.json["notes"])
    assert before.json["rows"]["ok"] == result.json["rows"]["ok"]


@pytest.mark.filterwarnings("error")
def test_a_run_whose_engine_ended_no_document(night: Bench) -> None:
    """What was to run is said where it is off the chart; tokens are of calls that ended, rates of all."""
    change_timeline(night, lambda table: with_column(table, "documents", [0] * table.num_rows))
    change_record(
        night,
        state="interrupted",
        stop_reason="time_budget",
        exit_code=4,
        estimated_seconds=None,
        rows={"computed": 0},
        tokens={"input": 0, "output": 0},
    )
    page, _ = report(night, "summarize")
    assert "interrupted, exit code 4: time_budget" in heading(page)
    assert "38 to run: off the chart" in page.text
    assert 2 == page.text.count("of calls that ended; ") == page.text.count(" a second with those under way")


def test_the_charts_of_a_run_that_goes_on_end_where_its_timeline_does(night: Bench) -> None:
    """And say so; the documents end with the record, which is newer."""
    page, _ = report(night, "summarize")
    assert "is not in the timeline" not in page.text
    running = json.loads(run_record(night).read_bytes())["seconds"]["running"]
    change_record(night, state="running", exit_code=None, seconds={"running": running + 60})
    page, result = report(night, "summarize")
    end = pages.time(result.json["course"]["seconds"][-1])
    assert 2 == page.text.count(f"It ends at {end}: what came after is not in the timeline.")
    assert f"The line ends with the run's record; up to {end} it is the timeline's." in page.text


def test_what_a_sample_missed_of_the_kv_cache_is_drawn(night: Bench) -> None:
    """The highest share of all steps, over the samples."""
    change_timeline(night, lambda table: with_column(table, "kv_cache_usage_max", [0.87] * table.num_rows))
    page, result = report(night, "summarize")
    assert pytest.approx(0.87) == result.json["kv_cache_usage_max"]
    assert "most of all steps: 87%" in page.text


@pytest.mark.parametrize(
    ("changes", "doubt"),
    [
        ({"metrics": {"ceiling_share": 1.6}}, "the run was 1.6 times as fast as the profile says"),
        ({"profile": {"decode": [[1, 5.0]]}}, "the profile covers 1 sequences at once, and"),
        ({"metrics": {"ceiling_share": 1.2}}, None),
    ],
)
def test_a_profile_that_is_no_measure_of_the_run_is_said(
    night: Bench, changes: dict[str, Any], doubt: str | None
) -> None:
    """On the page, and beside the figure; a chart that is cut off says how far it goes."""
    change_timeline(night, lambda table: with_column(table, "running", [8] * table.num_rows))
    change_record(night, profile={"decode": [[8, 900.0]]})
    change_record(night, **changes)
    page, result = report(night, "summarize")
    told = result.json["ceiling"]["doubt"]
    assert (doubt is None) == (told is None) == ("are no measure here" not in page.text)
    assert (doubt or "") in (told or "")
    assert ("cut off at 200%, up to" in page.text) == ("profile" in changes)
