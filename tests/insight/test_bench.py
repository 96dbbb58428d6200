"""`batchrun bench` on an engine whose rates are known: what comes out, what is left out, and what is kept."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import batchrun
from batchrun.engines.base import EngineConfig
from batchrun.engines.lead import LeadEngine
from batchrun.errors import ConfigError, CorpusError, CorpusNotFoundError
from batchrun.insight.bench import BenchReporter
from batchrun.insight.bench import bench as measure
from batchrun.insight.bench_cells import CacheState, Cell, CellResult, CellStatus
from batchrun.insight.bench_file import SCHEMA, read_bench
from batchrun.insight.bench_plan import Matrix, parse_sizes
from batchrun.job import open_job
from batchrun.window import Window
from batchrun.workspace import Workspace
from tests.commands import Bench as Workbench
from tests.insight.benches import SMALL, by_cell, read, run, write_spec


def ttft(result: CellResult) -> float:
    assert result.ttft_ms is not None
    return result.ttft_ms.p50


def itl(result: CellResult) -> tuple[float, float]:
    assert result.itl_ms is not None
    return result.itl_ms.p50, result.itl_ms.p99


def test_known_rates_come_out(bench: Workbench) -> None:
    """Alone, the first token comes when the prompt is read, the others at the decode rate. Beside three others a
    token waits for the prompts that are read between: that is in the percentiles, and would be lost in a mean.
    """
    write_spec(bench)
    result = run(bench, *SMALL, "--cache", "cold")
    assert 0 == result.code, result.err
    cells = by_cell(read(bench))
    assert [128, 512] == pytest.approx([ttft(cells[n, 16, 1, "cold"]) for n in (128, 512)])
    assert (50, 50) == pytest.approx(itl(cells[512, 16, 1, "cold"]), rel=1e-5)
    among_four = cells[512, 16, 4, "cold"]
    assert 512 + 70 == pytest.approx(ttft(among_four))  # the step writes a token of the three others, too
    assert (80, 512 + 70) == pytest.approx(itl(among_four), rel=1e-5)
    figures = among_four.figures
    assert figures is not None
    assert (4, 0, 0) == (figures.running_max, figures.waiting_max, figures.preemptions)
    assert 4 * 512 / 40_000 == pytest.approx(figures.kv_cache_usage_max, rel=0.1)
    assert figures.memory_bytes_max > 1 << 20
    assert None is figures.gpu_memory_bytes_max


def test_every_output_has_the_length_that_was_asked_for(bench: Workbench) -> None:
    """Eight requests, or twice the concurrency; each with every gap between its tokens, and all percentiles."""
    write_spec(bench)
    run(bench, "--inputs", "64", "--outputs", "1,16", "--concurrency", "1,8", "--cache", "cold")
    rows = pq.read_table(bench.home / "bench.parquet").to_pylist()
    assert 2 * 8 + 2 * 16 == len(rows)
    for row in rows:
        assert row["output_tokens"] == row["num_output"]
        assert row["output_tokens"] - 1 == len(row["itl_ms"])
        assert (row["itl_p99"] is None) == (row["output_tokens"] == 1)
        assert row["queue_ms"] + row["prefill_ms"] == pytest.approx(row["ttft_ms"])
        assert sum(row["itl_ms"]) == pytest.approx(row["decode_ms"], rel=1e-4)
    assert {8} == {row["running"] for row in rows if row["concurrency"] == 8}


def test_the_states_of_the_cache_are_kept_apart(bench: Workbench) -> None:
    """Cold finds nothing, warm all whole blocks but the last, repeated prefix three quarters; the first token comes
    as much earlier.
    """
    write_spec(bench)
    run(bench, "--inputs", "512", "--outputs", "16", "--concurrency", "1,4")
    cells = by_cell(read(bench))
    cached = {
        state.value: {r.cached_tokens for r in cells[512, 16, 4, state].requests} for state in CacheState
    }
    assert {"cold": {0}, "warm": {496}, "repeated-prefix": {384}} == cached
    alone = [ttft(cells[512, 16, 1, state]) for state in CacheState]
    assert [512, 16, 128] == pytest.approx(alone)


def test_a_warm_cache_holds_no_more_prompts_than_fit(bench: Workbench) -> None:
    """With 1,024 tokens of cache two prompts of 384 take turns beside an output: each is found again."""
    write_spec(bench, kv_tokens=1024)
    run(bench, "--inputs", "384", "--outputs", "16", "--concurrency", "1", "--cache", "warm")
    [result] = read(bench).cells
    assert [368] * 8 == [request.cached_tokens for request in result.requests]


def test_what_does_not_fit_is_said_and_left_out(bench: Workbench) -> None:
    """Context, KV cache and number of sequences, by name, in the file too; the rest is measured and the end is good."""
    write_spec(bench, kv_tokens=1600)
    result = run(
        bench, "--inputs", "64,1K,1700,2K", "--outputs", "16", "--concurrency", "1,32", "--cache", "cold"
    )
    assert 0 == result.code, result.err
    said = [
        "skipped: 2K in, 16 out, cold (2 cells): 2,064 tokens do not fit engine.max_model_len 2,048",
        "skipped: 1,700 in, 16 out, cold (2 cells): 1,716 tokens do not fit the KV cache of 1,600",
        "skipped: 16 out, 32 at once, cold (2 cells): 32 at once are more than engine.max_num_seqs 16",
        "measuring 2 of 8 cells, 16 requests",
    ]
    for line in said:
        assert f"batchrun: {line}" in result.err
    skipped = {one.reason for one in read(bench).cells if one.status is CellStatus.SKIPPED}
    assert 3 == len(skipped)
    assert 2 == sum(one.status is CellStatus.MEASURED for one in read(bench).cells)
    assert all(any(str(reason) in line for line in said) for reason in skipped)


def test_without_a_prefix_cache_there_is_cold_alone(bench: Workbench) -> None:
    """The others would be the same again: they are skipped, and it is said why."""
    write_spec(bench, prefix_caching=False)
    result = run(bench, "--inputs", "64", "--outputs", "4", "--concurrency", "1")
    reason = "the engine has no prefix cache: it would be as cold"
    assert f"skipped: 64 in, 4 out, 1 at once, warm and repeated prefix (2 cells): {reason}" in result.err
    assert [None, reason, reason] == [one.reason for one in read(bench).cells]


def test_preemptions_and_waiting_are_recorded(bench: Workbench) -> None:
    """Where the KV cache does not hold what grows in it, requests are put back, and say so."""
    write_spec(bench, kv_tokens=640)
    run(bench, "--inputs", "128", "--outputs", "128", "--concurrency", "8", "--cache", "cold")
    [result] = read(bench).cells
    assert result.figures is not None
    assert result.figures.preemptions > 0
    assert result.figures.waiting_max > 0
    assert 1.0 == pytest.approx(result.figures.kv_cache_usage_max, abs=0.06)
    assert sum(request.preemptions for request in result.requests) > 0


def test_the_file_says_what_was_measured(bench: Workbench) -> None:
    """Engine, model, dtype, device and versions, as columns and as metadata with the spec; it reads back as it was."""
    write_spec(bench)
    result = run(bench, *SMALL)
    found = read(bench)
    about = found.about
    assert ("lead", "none", str(bench.model)) == (about.of.engine, about.of.dtype, about.model)
    assert (batchrun.__version__, 2048) == (about.batchrun, about.limits["max_model_len"])
    assert 1000 == about.spec["engine"]["options"]["prefill_tokens_per_s"]
    assert datetime.now(UTC) - datetime.fromisoformat(about.measured_at) < timedelta(hours=1)
    table = pq.read_table(bench.home / "bench.parquet")
    assert SCHEMA.equals(table.schema)
    for name in ("engine", "engine_version", "model", "model_content", "dtype", "device", "batchrun_version"):
        assert 1 == len(set(table[name].to_pylist())), name
    assert about.of.device == table["device"][0].as_py()
    assert len(Matrix().caches) * 4 == len(found.cells) == len(result.json["cells"])
    said = result.json["cells"][0]
    assert found.cells[0].ttft_ms is not None
    assert said["ttft_ms"]["p99"] == pytest.approx(found.cells[0].ttft_ms.p99)
    assert (8, 8 * 15) == (said["num_requests"], said["num_gaps"])
    assert str(bench.home / "bench.parquet") == result.json["output"]


def test_the_table_has_a_line_for_each_cell(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the number of requests that its percentiles are of; --quiet says nothing. In a narrow terminal it loses
    nothing.
    """
    write_spec(bench)
    target = bench.home / "bench.parquet"
    words = ("bench", "--inputs", "512", "--outputs", "16", "--concurrency", "1", "-o", target)
    out = bench.run(*words).out.splitlines()
    assert 2 + 3 == len(out)
    assert ["512", "16", "1", "cold", "8", "512", "512", "512", "50.0", "50.0", "50.0"] == out[2].split()[:11]
    assert ["warm", "8", "16.0"] == out[3].split()[3:6]
    for columns in (40, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = bench.run(*words).out.splitlines()
        assert columns >= max(len(line) for line in lines if " " in line.strip())  # but a path
        told = [word.strip(",:") for line in lines for word in line.split()]
        assert {word for line in out[2:] for word in line.split()} <= set(told)
    quiet = bench.run(*words, "--quiet")
    assert (0, "", "") == (quiet.code, quiet.out, quiet.err)


def test_with_a_profile_the_time_is_foretold(bench: Workbench) -> None:
    """Before anything is measured, by lengths and in all; about what the engine then takes."""
    write_spec(bench)
    bench.run("calibrate", "--seconds", "600", "--batched-tokens", "2048")
    result = run(bench, "--inputs", "512", "--outputs", "64", "--concurrency", "1,4")
    assert "512 in, 64 out: about " in result.err
    assert "by the profile of batchrun calibrate" in result.err
    assert "s left" in result.err
    job = open_job(Workspace(home=bench.home), bench.home / "jobs" / "summarize.toml", name=None, seed=0)
    told: list[float] = []

    class Ear(BenchReporter):
        def planned(self, cells: Any, num_requests: int, estimates: Any) -> None:
            told.append(sum(estimates.values()))

    engines: list[LeadEngine] = []

    def started(config: EngineConfig) -> LeadEngine:
        engines.append(LeadEngine(config))
        return engines[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("batchrun.engines.start", started)
        matrix = Matrix(inputs=(512,), outputs=(64,), concurrency=(1, 4))
        measure(job, matrix, output=bench.home / "bench.parquet", window=Window(), reporter=Ear())
    assert told[0] == pytest.approx(engines[0].clock(), rel=0.3)


def test_only_a_bench_file_is_replaced(bench: Workbench) -> None:
    """Summaries and a file of somebody else stay, before anything is loaded; an earlier bench goes."""
    write_spec(bench)
    words = ("bench", "--inputs", "64", "--outputs", "4", "--concurrency", "1", "--cache", "cold", "-o")
    corpus = bench.corpus(["A text of its own."])
    assert 0 == bench.submit(corpus).code
    for path in (corpus, bench.home / "corpus.summaries.parquet"):
        before = path.read_bytes()
        assert 73 == bench.run(*words, path).code
        assert before == path.read_bytes()
    target = bench.home / "b.parquet"
    assert [0, 0] == [bench.run(*words, target).code for _ in range(2)]
    with pytest.raises(CorpusError, match="no bench file"):
        read_bench(corpus)
    with pytest.raises(CorpusNotFoundError, match="is not there"):
        read_bench(Path("nowhere.parquet"))


def test_another_form_of_the_file_is_not_read(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    write_spec(bench)
    run(bench, "--inputs", "64", "--outputs", "4", "--concurrency", "1", "--cache", "cold")
    monkeypatch.setattr("batchrun.insight.bench_file.VERSION", 2)
    with pytest.raises(ConfigError, match="has version 1 of its form, this batchrun reads 2"):
        read(bench)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--inputs", "many"], "--inputs 512,8K"),
        (["--outputs", "0"], "--outputs 512,8K"),
        (["--concurrency", ","], "--concurrency 512,8K"),
        (["--cache", "cold,hot"], "--cache cold,warm,repeated-prefix"),
    ],
)
def test_what_is_asked_for_wrongly_is_said(bench: Workbench, words: list[str], hint: str) -> None:
    result = run(bench, *words)
    assert 2 == result.code
    assert hint in result.err


def test_sizes_may_be_written_in_thousands() -> None:
    assert (512, 8192, 2048) == parse_sizes("--inputs", "512, 8K,2k")


def test_cells_are_each_measured_once_and_cold_before_warm() -> None:
    """Whatever the order and the repetitions in which they are asked for: warm reads the prompts of cold."""
    caches = (CacheState.WARM, CacheState.COLD, CacheState.WARM)
    cells = Matrix(inputs=(64, 64), outputs=(4,), concurrency=(8, 1), caches=caches).cells()
    cell = Cell(input_tokens=64, output_tokens=4, concurrency=8, cache=CacheState.COLD)
    assert [cell, replace(cell, cache=CacheState.WARM)] == cells[:2]
    assert 4 == len(cells)
