"""Two benches beside each other, cell by cell."""

from pathlib import Path

import msgspec
import numpy as np

from batchrun.insight.bench_cells import Cell, CellResult, CellStatus
from batchrun.insight.bench_file import Bench, read_bench
from batchrun.insight.comparison import Comparison
from batchrun.insight.exclusions import Exclusion
from batchrun.insight.figures import Figure, judged, of_shares, single
from batchrun.insight.proportions import Share
from batchrun.insight.request_figures import COLUMNS, MOMENTS, Sample, group_figures
from batchrun.insight.sides import Side, changed_settings, flat


def compare_benches(a: Path, b: Path) -> Comparison:
    """Of the cells that both files measured; those of one alone are told. Raises as `read_bench` does."""
    benches = read_bench(a), read_bench(b)
    sides = _side(a, benches[0]), _side(b, benches[1])
    cells = [{result.cell: result for result in bench.cells} for bench in benches]
    both = [cell for cell in cells[0] if cell in cells[1]]
    figures: list[Figure] = []
    left_out = [*_only("A", cells[0], cells[1]), *_only("B", cells[1], cells[0])]
    for cell in both:
        pair = cells[0][cell], cells[1][cell]
        unmeasured = [
            Exclusion(of=cell.text, side=side, reason=f"{result.status}: {result.reason or 'no reason'}")
            for side, result in zip("AB", pair, strict=True)
            if result.status is not CellStatus.MEASURED
        ]
        left_out += [*unmeasured, *_failed(cell, pair)]
        if all(result.requests for result in pair):
            figures += _figures(cell, *pair)
    return Comparison(
        kind="bench",
        a=sides[0],
        b=sides[1],
        settings=changed_settings(*sides),
        figures=judged(figure for figure in figures if (figure.a, figure.b) != (None, None)),
        exclusions=tuple(left_out),
    )


def _failed(cell: Cell, pair: tuple[CellResult, CellResult]) -> list[Exclusion]:
    numbers = [(len(result.requests) - len(result.finished), len(result.requests)) for result in pair]
    return [
        Exclusion(of=cell.text, side=side, number=number, total=total, reason="they failed")
        for side, (number, total) in zip("AB", numbers, strict=True)
        if number
    ]


def _side(path: Path, bench: Bench) -> Side:
    about, of = bench.about, bench.about.of
    measured = sum(result.status is CellStatus.MEASURED for result in bench.cells)
    told = {
        "spec": about.spec,
        "limits": about.limits,
        "of": msgspec.to_builtins(of),
        "model": about.model,
        "batchrun": about.batchrun,
    }
    return Side(
        name=str(path.absolute()),
        state=f"{measured} of {len(bench.cells)} cells measured",
        started_at=about.measured_at,
        engine=f"{of.engine} {of.engine_version} {of.device} {of.dtype}",
        settings=dict(flat(told)),
    )


def _figures(cell: Cell, a: CellResult, b: CellResult) -> list[Figure]:
    group, results = cell.text, (a, b)
    failed = [
        Share(number=len(result.requests) - len(result.finished), of=len(result.requests))
        for result in results
    ]
    preempted = [None if result.figures is None else result.figures.preemptions for result in results]
    return [
        of_shares("requests_failed", *failed, group=group),
        single(
            "prefill_tokens_per_second", *(result.prefill_tokens_per_s for result in results), group=group
        ),
        single("decode_tokens_per_second", *(result.decode_tokens_per_s for result in results), group=group),
        single("preemptions", *preempted, group=group),
        *group_figures(group, _sample(a), _sample(b), is_paired=False),
    ]


def _sample(result: CellResult) -> Sample:
    rows = [
        {
            "queue_ms": one.queue_ms,
            "ttft_ms": one.ttft_ms,
            "tpot_ms": one.decode_ms / (one.num_output - 1)
            if one.decode_ms is not None and one.num_output > 1
            else None,
            "itl_p95": float(np.percentile(one.itl_ms, 95)) if one.itl_ms else None,
            "output_tokens": float(one.num_output),
            "finished_s": one.finished_s,
            "decode_ms": one.decode_ms,
        }
        for one in result.finished
    ]
    values = {column: np.array([row[column] for row in rows], np.float64) for column in (*COLUMNS, *MOMENTS)}
    return Sample(values=values)


def _only(side: str, cells: dict[Cell, CellResult], others: dict[Cell, CellResult]) -> list[Exclusion]:
    reason = "the other bench has no such cell"
    return [Exclusion(of=cell.text, side=side, reason=reason) for cell in cells if cell not in others]
