"""What plan and submit say of the time: by the profile where there is one, else by the last run."""

import json
from pathlib import Path
from typing import Any

import pytest

from batchrun.forecast import known_loading
from batchrun.job import open_job
from batchrun.prediction import known_output, known_rate
from batchrun.workspace import Workspace
from tests.commands import Bench, texts

RATES = "prefill_tokens_per_s = 20_000\ndecode_tokens_per_s = 4_000"
ROWS = 60


@pytest.fixture
def profile(bench: Bench) -> Path:
    """Of the bench's lead engine, whose rates are known; the figures of the file are then set by hand."""
    bench.write_spec(RATES)
    result = bench.run("calibrate", "--seconds", "1", "--json")
    assert 0 == result.code, result.err
    path = Path(result.json["path"])
    change(path, prefill=[[1, 10_000.0]], decode=[[1, 500.0], [1024, 2000.0]])
    return path


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def record_of(bench: Bench) -> Any:
    [path] = bench.home.glob("checkpoints/*/seed-0/corpora/*/runs/*.json")
    return json.loads(path.read_text())


def test_what_a_run_measured_is_not_forgotten_for_one_that_computed_nothing(bench: Bench) -> None:
    """Nor for the one that begins: outputs, rate and loading are those of the last run that computed something."""
    spec = bench.write_spec(RATES)
    corpus = bench.corpus(texts(ROWS))
    job = open_job(Workspace(home=bench.home), spec, name=None, seed=0)
    told = []
    for _ in range(2):
        assert 0 == bench.submit(corpus).code
        told.append((known_output(job), known_rate(job), known_loading(job)))
    assert None not in told[0]
    assert told[0] == told[1]


def test_plan_tells_the_time_by_the_profile(bench: Bench, profile: Path) -> None:
    """Tokens to read at their rate, and `max_tokens` for each document while no output is known."""
    corpus = bench.corpus(texts(ROWS))
    plan = bench.run("plan", corpus, "--json").json
    running = 500 + 1500 * 0.5906  # of 60 sequences: ln 60 / ln 1024 of the way from 500 to 2,000
    expected = plan["counts"]["to_run_tokens"] / 10_000 + ROWS * 20 / running
    assert expected == pytest.approx(plan["estimated_seconds"], 0.01)
    told = bench.run("plan", corpus).out.splitlines()[-1]
    assert told.startswith("time: about 1 s, by the profile of 20")
    assert "cores)" in told


def test_a_run_is_held_against_what_was_foretold(bench: Bench, profile: Path) -> None:
    """The record has the estimate, the time and the share of the ceiling; the last lines and status say it."""
    corpus = bench.corpus(texts(ROWS))
    estimated = bench.run("plan", corpus, "--json").json["estimated_seconds"]
    result = bench.submit(corpus)
    record = record_of(bench)
    assert estimated == pytest.approx(record["estimated_seconds"])
    seconds, tokens = record["seconds"]["running"], record["tokens"]
    share = record["metrics"]["ceiling_share"]
    ceiling = tokens["input"] / 10_000 + tokens["output"] / (500 + 1500 * 0.5906)
    assert ceiling / seconds == pytest.approx(share, 0.02)
    assert "predicted 1 s, took " in result.err
    assert f": {share:.0%} of what the engine reaches (batchrun calibrate)" in result.err
    status = bench.run("status", record["job_id"]).out
    assert "predicted: 1 s" in status
    assert f"ceiling:   {share:.0%} of the engine's profile" in status


def test_the_outputs_of_earlier_runs_are_expected_again(bench: Bench, profile: Path) -> None:
    """After a run whose outputs were shorter than they may be, the next plan reckons with their mean."""
    assert 0 == bench.submit(bench.corpus([f"{n} short" for n in range(20)])).code
    tokens = record_of(bench)["tokens"]
    corpus = bench.corpus([f"{n} short" for n in range(100, 120)], "more.parquet")
    plan = bench.run("plan", corpus, "--json").json
    running = 500 + 1500 * 0.4322  # ln 20 / ln 1024
    expected = plan["counts"]["to_run_tokens"] / 10_000 + tokens["output"] / running
    assert tokens["output"] < 20 * 20
    assert expected == pytest.approx(plan["estimated_seconds"], 0.01)


def test_without_a_profile_the_last_run_tells(bench: Bench) -> None:
    """And before any run nothing does; a run that was not foretold says nothing of it."""
    corpus = bench.corpus(texts(ROWS))
    assert "no rate known yet" in bench.run("plan", corpus).out
    assert "predicted" not in bench.submit(corpus).err
    assert record_of(bench)["metrics"]["ceiling_share"] is None
    more = bench.corpus(texts(ROWS + 5), "more.parquet")
    assert "at the rate of the last run" in bench.run("plan", more).out
    assert "predicted 0 s, took " in bench.submit(more).err


def test_a_damaged_profile_is_named_and_the_last_run_tells(bench: Bench, profile: Path) -> None:
    """No run is stopped by a file that is there for its estimate alone."""
    profile.write_bytes(profile.read_bytes()[:-50])
    result = bench.submit(bench.corpus(texts(ROWS)))
    assert 0 == result.code
    assert f"the profile {profile} is ignored: it is damaged" in result.err
    plan = bench.run("plan", bench.corpus(texts(ROWS + 5), "more.parquet"))
    assert f"the profile {profile} is ignored" in plan.err
    assert "at the rate of the last run" in plan.out


def test_other_rates_are_another_engine(bench: Bench, profile: Path) -> None:
    """A simulator with other rates is not foretold by the old ones."""
    bench.write_spec(RATES.replace("4_000", "5_000"))
    plan = bench.run("plan", bench.corpus(texts(ROWS)))
    assert "was measured with other [engine.options]; measure again: batchrun calibrate" in plan.err
