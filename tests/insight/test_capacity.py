"""Capacity on the simulator: what is foretold of a night, of shards, of limits and of a window is what nights come to."""

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from batchrun.records import Preference
from batchrun.telemetry.metrics_file import SCALING
from tests.commands import Bench, set_engine, texts
from tests.insight.nights import MAX_TOKENS, calibrate, night_texts, write_night

ROWS = 300


def told(bench: Bench, *arguments: object) -> Any:
    result = bench.run("capacity", *arguments, "--json")
    assert 0 == result.code, result.err
    return result.json


def took(bench: Bench, *arguments: object) -> float:
    result = bench.submit(*arguments)
    assert 0 == result.code, result.err
    return float(result.json["seconds"]["running"])


def first_night(bench: Bench, rows: int = ROWS) -> float:
    """A calibrated job that has run once; the seconds that it ran."""
    calibrate(bench, write_night(bench))
    return took(bench, bench.corpus(night_texts(rows, 1), "first.parquet"))


def test_a_plan_is_held_by_the_night_that_follows(bench: Bench) -> None:
    """Hours on one replica within 10 %, reading and writing apart, and the same work in windows of five minutes."""
    first_night(bench)
    second = bench.corpus(night_texts(ROWS, 2), "second.parquet")
    plan = told(bench, second)
    seconds = took(bench, second)
    assert pytest.approx(seconds, rel=0.1) == plan["by_speed"]["seconds"]
    assert plan["by_speed"] == plan["by_profile"]
    parts = plan["by_profile"]["reading_seconds"] + plan["by_profile"]["writing_seconds"]
    assert pytest.approx(plan["by_profile"]["seconds"]) == parts
    run = told(bench, "summarize")
    assert run["measured"]["took_seconds"] == seconds == pytest.approx(run["by_speed"]["seconds"])
    assert plan["input_tokens"] == run["input_tokens"]
    for name in ("prefill_tokens", "decode_tokens"):
        counted, foretold = (sum(window[name] for window in found["windows"]) for found in (run, plan))
        assert pytest.approx(counted, rel=0.1) == foretold
        peak = max(window[name] for window in run["windows"])
        assert peak == run[f"peak_{name.removesuffix('_tokens')}"][name]
    assert [300.0] * (len(run["windows"]) - 1) == [window["seconds"] for window in run["windows"][:-1]]


def test_twice_the_load(bench: Bench) -> None:
    """A run foretells one of twice as many documents within 10 %."""
    first_night(bench)
    twice = told(bench, "summarize")["twice"]
    seconds = took(bench, bench.corpus(night_texts(2 * ROWS, 3), "twice.parquet"))
    assert 2 * ROWS == twice["documents"]
    assert pytest.approx(seconds, rel=0.1) == twice["seconds"]


def test_replicas_for_a_deadline(bench: Bench) -> None:
    """As many shards as are told end in the window, each of them; with one less the fullest does not."""
    first_night(bench)
    corpus = bench.corpus(night_texts(3 * ROWS, 4), "second.parquet")
    window = told(bench, corpus)["by_speed"]["seconds"] / 2.4
    plan = told(bench, corpus, "--time-budget", f"{window:.0f}")
    number = plan["needed"]["replicas"]
    assert 3 == number
    assert number < plan["needed"]["replicas_if_one_is_lost"]
    assert number < plan["needed_for_twice"]["replicas"]
    [row] = [row for row in plan["replicas"] if row["number"] == number]
    shards = [took(bench, corpus, "--shard", f"{place}/3") for place in (1, 2, 3)]
    assert max(shards) <= row["seconds"] <= window
    assert pytest.approx(sum(shards), rel=0.1) == plan["by_speed"]["seconds"]
    assert max(shards) * 3 / sum(shards) <= row["largest_share"]
    assert window < max(took(bench, corpus, "--shard", f"{place}/2", "--seed", "1") for place in (1, 2))
    assert row["seconds"] < row["seconds_replaced"] < row["seconds_reduced"]


def test_too_much_for_the_window(bench: Bench) -> None:
    """What fits and what is delayed is all there is, by each preference, and agrees with the plan; the limits told make
    it fit, and no higher ones do.
    """
    seconds = first_night(bench)
    corpus = bench.corpus(night_texts(ROWS, 5), "second.parquet")
    plan = told(bench, corpus, "--time-budget", f"{0.8 * seconds:.0f}")
    too_much = plan["excess"]
    assert pytest.approx(plan["by_speed"]["seconds"]) == too_much["seconds"] + too_much["missing_seconds"]
    by_preference = {one["prefer"]: one for one in too_much["fitting"]}
    assert set(Preference) == by_preference.keys()
    for one in by_preference.values():
        assert ROWS == one["documents"] + sum(part["documents"] for part in one["delayed"])
        total = one["tokens"] + sum(part["tokens"] for part in one["delayed"])
        assert pytest.approx(plan["input_tokens"], abs=3) == total
    shortest, longest = by_preference["shortest"], by_preference["longest"]
    assert longest["documents"] <= by_preference["order"]["documents"] <= shortest["documents"] < ROWS
    for name in ("truncate", "leave_out"):
        assert too_much[name]["seconds"] <= too_much["seconds"]
        assert 0 < too_much[name]["documents"] <= ROWS
    assert too_much["truncate"]["limit"] <= too_much["leave_out"]["limit"]
    limit = too_much["truncate"]["limit"]
    shorter = write_night(bench, "shorter")
    set_engine(shorter, max_model_len=limit + MAX_TOKENS)
    held = took(bench, corpus, "--job", shorter, "-o", bench.home / "shorter.parquet")
    assert pytest.approx(held, rel=0.1) == too_much["truncate"]["seconds"]


def test_outputs_that_end_sooner(bench: Bench) -> None:
    """By the lengths that earlier outputs had: a job with that limit takes as long, within 10 %."""
    first_night(bench)
    corpus = bench.corpus(night_texts(ROWS, 6), "second.parquet")
    [cap] = [one for one in told(bench, corpus)["output_limits"] if one["limit"] == 32]
    assert 0.2 < cap["affected_share"] < 0.5
    spec = write_night(bench, "capped")
    spec.write_text(spec.read_text().replace(f"max_tokens = {MAX_TOKENS}", "max_tokens = 32"))
    held = took(bench, corpus, "--job", spec, "-o", bench.home / "capped.parquet")
    assert pytest.approx(held, rel=0.1) == cap["seconds"]


def test_longer_documents_than_a_limit(bench: Bench) -> None:
    """Cut at a limit all are read as far as that; left out, those below it are all that is read."""
    calibrate(bench, write_night(bench, long_documents="map_reduce"))
    corpus = bench.corpus(["short " * 100] + ["long and " * (2000 + n) for n in range(3)])
    plan = told(bench, corpus)
    limits = {(one["what"], one["limit"]): one for one in plan["input_limits"]}
    cut, left_out = limits["truncate", 2048], limits["leave out", 2048]
    assert 0.75 == cut["affected_share"] == left_out["affected_share"]
    assert 3 * 2048 == cut["input_tokens"] - left_out["input_tokens"]
    assert [4, 1] == [cut["documents"], left_out["documents"]]
    assert left_out["seconds"] < cut["seconds"] < plan["by_speed"]["seconds"]


def test_the_kv_cache(bench: Bench) -> None:
    """A run tells its peak and when it was; a plan foretells no more than there is."""
    write_night(bench)
    took(bench, bench.corpus(night_texts(ROWS, 1)))
    run, plan = told(bench, "summarize"), told(bench, bench.corpus(night_texts(ROWS, 2), "second.parquet"))
    assert 20_000 == run["kv"]["kv_tokens"] == plan["kv"]["kv_tokens"]
    assert 0 < run["kv"]["tokens"] <= 20_000
    assert 0 < run["kv"]["at_seconds"] <= run["measured"]["took_seconds"] + 60
    assert 0 < plan["kv"]["tokens"] < plan["kv"]["most_wanted"] <= 32 * 1024
    few = told(bench, bench.corpus(night_texts(2, 3), "few.parquet"))
    assert 2 == few["kv"]["sequences"]
    assert few["input_tokens"] + few["output_tokens"] == pytest.approx(few["kv"]["tokens"], abs=2)
    assert few["kv"]["most_wanted"] == pytest.approx(few["kv"]["tokens"], abs=2)


def test_a_peak_between_two_samples(bench: Bench) -> None:
    """It is told by when it was; how many sequences ran then is not known, and is not told."""
    write_night(bench)
    took(bench, bench.corpus(night_texts(20, 1)))
    [file] = bench.home.glob("**/timelines/*.parquet")
    table = pq.read_table(file)
    place = table.schema.get_field_index("kv_cache_usage_max")
    higher = pc.multiply(table["kv_cache_usage_max"], 1.5).combine_chunks()
    pq.write_table(table.set_column(place, table.schema.field(place), higher), file)
    kv = told(bench, "summarize")["kv"]
    assert None is kv["sequences"]
    told_peak = next(
        line for line in bench.run("capacity", "summarize").out.splitlines() if "at its peak" in line
    )
    assert ", by " in told_peak
    assert "sequence" not in told_peak


def test_damaged_telemetry_is_named(bench: Bench) -> None:
    """It is no bug, and not the disk's: its corpus can still be asked for."""
    write_night(bench)
    corpus = bench.corpus(night_texts(5, 1))
    took(bench, corpus)
    [file] = bench.home.glob("**/requests/*.parquet")
    file.write_bytes(file.read_bytes()[:-50])
    result = bench.run("capacity", "summarize")
    assert 78 == result.code
    assert f"{file} is damaged" in result.err
    assert "batchrun capacity CORPUS" in result.err
    assert 0 == bench.run("capacity", corpus).code


def test_a_run_whose_requests_all_failed_is_no_plan(bench: Bench) -> None:
    """Nothing of it can be counted on; its corpus can be asked for."""
    write_night(bench)
    took(bench, bench.corpus(night_texts(5, 1)))
    [file] = bench.home.glob("**/requests/*.parquet")
    table = pq.read_table(file)
    place = table.schema.get_field_index("error_type")
    failed = pa.array(["engine_error"] * len(table), pa.string())
    pq.write_table(table.set_column(place, table.schema.field(place), failed), file)
    result = bench.run("capacity", "summarize")
    assert 78 == result.code
    assert "all requests of run" in result.err
    assert "--only failed" in result.err


def test_without_a_profile(bench: Bench) -> None:
    """Tokens alone, and what to do; after a run its own speed."""
    write_night(bench)
    corpus = bench.corpus(night_texts(20, 1))
    plan = bench.run("capacity", corpus)
    assert 0 == plan.code
    assert "no speed is known" in plan.out
    assert "batchrun calibrate" in plan.out
    took(bench, corpus)
    said = " ".join(bench.run("capacity", "summarize", "--time-budget", "20s").out.split())
    assert "what shorter outputs save is told with a profile" in said
    assert "times by the input tokens/s of the run alone" in said
    assert "not known" in said
    assert told(bench, "summarize")["by_profile"] is None


def test_a_profile_of_fewer_sequences(bench: Bench) -> None:
    """What it does not cover is said where its times are told."""
    calibrate(bench, write_night(bench), most=16)
    basis = told(bench, bench.corpus(night_texts(20, 1)))["basis"]
    assert basis.endswith(
        "; the profile covers 16 sequences at once, and 32 ran: batchrun calibrate, with more --seconds"
    )
    calibrate(bench, bench.home / "jobs" / "summarize.toml")
    assert "covers" not in told(bench, bench.home / "corpus.parquet")["basis"]


def test_the_page(bench: Bench) -> None:
    """It says which signals scale the pool, why no time of a request is among them, and what to do with too much."""
    seconds = first_night(bench)
    page = " ".join(bench.run("capacity", "summarize", "--time-budget", f"{seconds / 2:.0f}").out.split())
    for name in SCALING:
        assert name in page
    assert "No TTFT and no ITL: nobody waits for a first token" in page
    assert "too much for the window with 1 replica" in page
    assert "--prefer shortest" in page
    assert "first attempts" in page
    assert "if one is lost half-way" in page
    enough = bench.run("capacity", "summarize", "--time-budget", f"{seconds / 2:.0f}", "--replicas", "3").out
    assert "all fits the window with 3 replicas" in enough


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nobody"], 78, "no job 'nobody'"),
        (["missing.parquet"], 66, "missing.parquet"),
        (["summarize", "--time-budget", "soon"], 2, "is no time"),
        (["summarize", "--replicas", "0"], 2, "--replicas"),
        (["summarize", "--time-budget", "0"], 2, "no time in the window to plan for"),
        (["summarize", "--seed", "0", "--name", "foo"], 2, "--name, --seed: only a corpus takes that"),
        (["summarize", "--limit", "3"], 2, "--limit: only a corpus takes that"),
    ],
)
def test_what_can_not_be_told(bench: Bench, arguments: list[str], code: int, says: str) -> None:
    """Each end has its exit code, and its object."""
    result = bench.run("capacity", *arguments, "--json")
    assert [code, code] == [result.code, result.json["exit_code"]]
    assert says in result.err


def test_a_run_that_computed_nothing(bench: Bench) -> None:
    """By its own id it is an error; its job stands for the last that computed something, and its plan is empty."""
    write_night(bench)
    corpus = bench.corpus(night_texts(5, 1))
    runs = [bench.submit(corpus).json["run_id"] for _ in range(2)]
    result = bench.run("capacity", runs[1])
    assert 78 == result.code
    assert f"run {runs[1]} computed nothing" in result.err
    assert runs[0] == told(bench, "summarize")["measured"]["run_id"]
    rest = told(bench, corpus, "--time-budget", "1h")
    assert [0, 0, None] == [rest["documents"], rest["input_tokens"], rest["excess"]]
    assert [[], None] == [rest["replicas"], rest["needed"]]
    page = bench.run("capacity", corpus, "--time-budget", "1h").out.splitlines()
    assert "nothing is left to run: 0 documents" == page[-1]
    assert not any("replica" in line for line in page)


def test_a_deadline_is_the_next_one(bench: Bench) -> None:
    """The clock time of a minute ago is tomorrow's: a planner has until then."""
    write_night(bench)
    ago = datetime.now().astimezone() - timedelta(minutes=1)
    result = bench.run("capacity", bench.corpus(texts(2)), "--deadline", f"{ago:%H:%M}", "--json")
    assert 0 == result.code, result.err
    assert f"{ago + timedelta(days=1):%Y-%m-%d %H:%M}" in result.json["window_ends"]
