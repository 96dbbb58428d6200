"""`batchrun bench` on the real engines, with the two-layer model, each in a process of its own."""

from pathlib import Path

import pytest

from batchrun.insight.bench_cells import CacheState, CellResult, CellStatus
from batchrun.insight.bench_file import read_bench
from tests.commands import Bench, set_engine

pytestmark = pytest.mark.engine

INPUTS, OUTPUT = (64, 300), 6


def measured(bench: Bench, kind: str) -> dict[tuple[int, int, CacheState], CellResult]:
    """By input tokens, concurrency and state of the cache."""
    spec = bench.home / "jobs" / "summarize.toml"
    set_engine(spec, kind=kind, dtype="float32", max_num_seqs=4, max_num_batched_tokens=2048)
    target: Path = bench.home / "bench.parquet"
    inputs = ",".join(map(str, (*INPUTS, 510)))
    words = ("--inputs", inputs, "--outputs", str(OUTPUT), "--concurrency", "1,4", "--requests", "5")
    process = bench.start("bench", *words, "-o", target)
    _, err = process.communicate(timeout=280)
    assert 0 == process.returncode, err
    found = read_bench(target)
    assert ("float32", kind) == (found.about.of.dtype, found.about.of.engine)
    by_cell = {(one.cell.input_tokens, one.cell.concurrency, one.cell.cache): one for one in found.cells}
    for number in (1, 4):
        assert CellStatus.SKIPPED is by_cell.pop((510, number, CacheState.COLD)).status
    return by_cell


def check(result: CellResult) -> None:
    """Five requests of the length asked for, with all their times, and the figures of the cell."""
    assert (CellStatus.MEASURED, None) == (result.status, result.reason)
    assert [OUTPUT] * 5 == [request.num_output for request in result.requests]
    assert [OUTPUT - 1] * 5 == [len(request.itl_ms) for request in result.requests]
    assert all(sum(r.itl_ms) == pytest.approx(r.decode_ms, rel=0.01, abs=0.1) for r in result.requests)
    assert result.ttft_ms is not None
    assert 0 < result.ttft_ms.p50 <= result.ttft_ms.p95 <= result.ttft_ms.p99
    assert result.figures is not None
    assert result.cell.concurrency == result.figures.running_max
    assert 0 < result.figures.kv_cache_usage_max <= 1
    assert result.figures.memory_bytes_max > 100 << 20


def test_vllm_finds_what_it_has_read(bench: Bench) -> None:
    """Blocks of 128 tokens on a CPU: of 300 it finds two when warm, one behind a repeated prefix of 225."""
    cells = measured(bench, "vllm")
    for number in (1, 4):
        for read in INPUTS:
            for state in CacheState:
                check(cells[read, number, state])
        cached = [{r.cached_tokens for r in cells[300, number, state].requests} for state in CacheState]
        assert [{0}, {256}, {128}] == cached


def test_the_transformers_engine_has_no_cache_to_be_warm(bench: Bench) -> None:
    """Its cells are cold; a batch begins together, and every request has its gaps."""
    cells = measured(bench, "transformers")
    for number in (1, 4):
        for read in INPUTS:
            check(cells[read, number, CacheState.COLD])
            for state in (CacheState.WARM, CacheState.REPEATED_PREFIX):
                skipped = cells[read, number, state]
                assert "the engine has no prefix cache: it would be as cold" == skipped.reason
                assert CellStatus.SKIPPED is skipped.status
