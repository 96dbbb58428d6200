"""Two bench files beside each other."""

from pathlib import Path

import numpy as np
import pytest

from batchrun.insight.bench_cells import (
    CacheState,
    Cell,
    CellFigures,
    CellResult,
    CellStatus,
    MeasuredRequest,
)
from batchrun.insight.bench_comparison import compare_benches
from batchrun.insight.bench_file import About, BenchFile
from batchrun.insight.figures import Verdict
from batchrun.profile import Subject
from tests.commands import Bench


def cell(concurrency: int, input_tokens: int = 512) -> Cell:
    return Cell(input_tokens=input_tokens, output_tokens=64, concurrency=concurrency, cache=CacheState.COLD)


def measured(one: Cell, seed: int, *, slower: float = 1.0, failed: int = 0, number: int = 40) -> CellResult:
    random = np.random.default_rng(seed)
    requests = [
        MeasuredRequest(
            queue_ms=1.0,
            prefill_ms=9.0,
            ttft_ms=float(random.lognormal(3, 0.2)),
            decode_ms=float(63 * slower * random.lognormal(2, 0.1)),
            itl_ms=tuple(slower * random.lognormal(2, 0.1, 63)),
            num_output=64,
            finished_s=float(place),
        )
        for place in range(number - failed)
    ]
    requests += [MeasuredRequest(error_type="engine_error", finished_s=99.0)] * failed
    figures = CellFigures(seconds=10.0 * slower, read_tokens=512 * number, written_tokens=64 * number)
    return CellResult(cell=one, status=CellStatus.MEASURED, figures=figures, requests=tuple(requests))


def bench_file(path: Path, *cells: CellResult, version: str = "1") -> Path:
    of = Subject(engine="vllm", engine_version=version, model="xxh3:0", dtype="float32", device="cpu")
    about = About(
        of=of, model="m", batchrun="0.1.0", limits={"max_num_seqs": 8}, measured_at="2026-11-30T12:00:00Z"
    )
    file = BenchFile(path, about, cells)
    for result in cells:
        file.put(result)
    return path


def test_cells_are_compared_one_by_one(tmp_path: Path) -> None:
    """The one that is slower is told, with how much; the other is within noise. What is in one file alone, or was not
    measured, is listed.
    """
    skipped = CellResult(cell=cell(32), status=CellStatus.SKIPPED, reason="32 are more than 8")
    a = bench_file(tmp_path / "a.parquet", measured(cell(1), 1), measured(cell(8), 2), measured(cell(32), 3))
    b = bench_file(
        tmp_path / "b.parquet",
        measured(cell(1), 4),
        measured(cell(8), 5, slower=1.3, failed=2),
        skipped,
        measured(cell(1, 1024), 6),
        version="2",
    )
    found = compare_benches(a, b)
    assert ("bench", ("of.engine_version: 1 → 2",)) == (found.kind, found.settings)
    said = {(each.group, each.metric): each for each in found.figures}
    same, slower = cell(1).text, cell(8).text
    assert {same, slower} == {group for group, _ in said}
    assert {Verdict.WITHIN_NOISE, Verdict.NOT_JUDGED} == {
        each.verdict for (group, _), each in said.items() if group == same
    }
    tpot = said[slower, "tpot_p50"]
    assert tpot.percent is not None
    assert (Verdict.WORSE, True) == (tpot.verdict, 20 < tpot.percent.low < tpot.percent.high < 45)
    assert Verdict.WORSE is said[slower, "itl_p95"].verdict
    failed = said[slower, "requests_failed"]
    assert (0, 40, 2, 40) == (failed.num_a, failed.of_a, failed.num_b, failed.of_b)
    rate = said[slower, "decode_tokens_per_second"]
    assert pytest.approx((256, 256 / 1.3)) == (rate.a, rate.b)
    assert [
        "512 in, 64 out, 32 at once, cold: B: skipped: 32 are more than 8",
        "1K in, 64 out, 1 at once, cold: B: the other bench has no such cell",
        "512 in, 64 out, 8 at once, cold: 2 of 40 of B: they failed",
    ] == sorted((each.text for each in found.exclusions), key=lambda text: ("they" in text, "other" in text))


def test_the_command_takes_two_files(bench: Bench) -> None:
    """A gate on one cell, and a screen of many cells that shows what differs alone."""
    cells = [measured(cell(power), power) for power in range(1, 9)]
    a = bench_file(bench.home / "a.parquet", *cells)
    slow = [
        measured(cell(3), 33, slower=1.5),
        *(measured(cell(power), 9 + power) for power in range(1, 9) if power != 3),
    ]
    b = bench_file(bench.home / "b.parquet", *slow)
    gate = "tpot_p50@512 in, 64 out, 3 at once, cold > +10%"
    result = bench.run("compare", a, b, "--fail-if", gate)
    assert 3 == result.code, result.err
    assert [] == [line for line in result.out.splitlines() if len(line) > 110]
    assert "figures are within noise or not judged" in result.out
    assert "requests of 512 in, 64 out, 3 at once, cold" in result.out
    assert "4 at once" not in result.out
    assert 0 == bench.run("compare", a, b, "--fail-if", gate.replace("3 at once", "4 at once")).code
