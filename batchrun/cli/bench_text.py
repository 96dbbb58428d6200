"""What `batchrun bench` says: the plan, each cell, and the table at the end."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import click
import msgspec

from batchrun.cli.layout import table, wrapped
from batchrun.clock import duration
from batchrun.errors import ExitCode
from batchrun.insight.bench import BenchEnd, BenchReporter
from batchrun.insight.bench_cells import CacheState, Cell, CellResult, CellStatus, size_text
from batchrun.insight.percentiles import Quantiles

HEAD = (
    *("in", "out", "at once", "cache", "n", "TTFT p50", "p95", "p99 ms", "ITL p50", "p95", "p99 ms"),
    *("read/s", "written/s", "cached", "KV max", "running", "preempted"),
)
FINE_BELOW = 100
"""Milliseconds that are told with a decimal."""


class Teller(BenchReporter):
    """On standard error, a line each. Nobody need read them."""

    def __init__(self) -> None:
        self._number = 0  # of cells to be measured

    def note(self, text: str) -> None:
        with suppress(OSError):
            click.echo(f"batchrun: {text}", err=True)

    def planned(
        self, cells: Sequence[CellResult], num_requests: int, estimates: Mapping[Cell, float]
    ) -> None:
        for line in [*_skipped(cells), *_estimates(estimates)]:
            self.note(line)
        self._number = sum(result.status is CellStatus.PENDING for result in cells)
        foretold = (
            f"about {duration(sum(estimates.values()))} by the profile of batchrun calibrate"
            if estimates
            else "how long it takes is not known before batchrun calibrate"
        )
        self.note(
            f"measuring {self._number:,} of {len(cells):,} cells, {num_requests:,} requests; {foretold}"
        )

    def measured(self, result: CellResult, number: int, estimates: Mapping[Cell, float]) -> None:
        ttft, itl, figures = result.ttft_ms, result.itl_ms, result.figures
        said = [f"TTFT p50 {_figure(ttft.p50)} ms"] if ttft else []
        said += [f"ITL p50 {_figure(itl.p50)} ms"] if itl else []
        said += [f"n {len(result.finished):,}, {duration(figures.seconds)}"] if figures else []
        said += [result.reason] if result.reason else []
        left = f"; about {duration(sum(estimates.values()))} left" if estimates else ""
        self.note(f"{number:,} of {self._number:,}: {result.cell.text}: {', '.join(said)}{left}")

    def ended(self, end: BenchEnd) -> None:
        """How it ended, and what is kept."""
        measured = sum(result.status is CellStatus.MEASURED for result in end.cells)
        planned = sum(result.status is not CellStatus.SKIPPED for result in end.cells)
        where = f"and kept in {end.path}" if end.is_written else f"and {end.path} is as it was"
        kept = f"{measured:,} of {planned:,} cells are measured, {where}"
        if end.exit_code == ExitCode.COMPLETE:
            self.note(kept)
        else:
            self.note(f"stopped ({end.stop_reason}): {kept}")
            self.note(
                "measure the others into a file of their own: --inputs, --outputs, --concurrency, --cache, -o"
            )


def plain(end: BenchEnd) -> dict[str, Any]:
    """The JSON object."""
    about: dict[str, Any] = msgspec.to_builtins(end.about)
    return {
        "output": str(end.path) if end.is_written else None,
        "exit_code": int(end.exit_code),
        "stop_reason": end.stop_reason,
        "about": about,
        "cells": [_plain(result) for result in end.cells],
    }


def _plain(result: CellResult) -> dict[str, Any]:
    cell: dict[str, Any] = msgspec.to_builtins(result.cell)
    told = {
        "status": result.status,
        "reason": result.reason,
        "num_requests": len(result.finished),
        "num_failed": len(result.requests) - len(result.finished),
        "num_gaps": result.num_gaps,
        "cached_tokens": sum(request.cached_tokens for request in result.finished),
        "prefill_tokens_per_s": result.prefill_tokens_per_s,
        "decode_tokens_per_s": result.decode_tokens_per_s,
    }
    spreads = {"ttft_ms": result.ttft_ms, "itl_ms": result.itl_ms, "figures": result.figures}
    plain: dict[str, Any] = cell | told | msgspec.to_builtins(spreads)
    return plain


def render(end: BenchEnd) -> str:
    """The cells that have figures, a line each where the terminal is as wide."""
    about, of = end.about, end.about.of
    title = f"{about.model}: {of.engine} {of.engine_version}, {of.dtype}, on {of.device}"
    told = [result for result in end.cells if result.finished]
    if not told:
        return "\n".join(wrapped(title))
    rows = [HEAD, *map(_row, told)]
    titles = [result.cell.text for result in told]
    keys = HEAD.index("cache") + 1
    return "\n".join([*wrapped(title), *table(rows, num_keys=keys, left={keys - 1}, titles=titles)])


def _row(result: CellResult) -> tuple[str, ...]:
    cell, figures = result.cell, result.figures
    assert figures is not None, "a cell with requests has figures"
    cached = sum(request.cached_tokens for request in result.finished)
    return (
        size_text(cell.input_tokens),
        size_text(cell.output_tokens),
        f"{cell.concurrency:,}",
        cell.cache.text,
        f"{len(result.finished):,}",
        *_milliseconds(result.ttft_ms),
        *_milliseconds(result.itl_ms),
        f"{result.prefill_tokens_per_s or 0:,.0f}",
        f"{result.decode_tokens_per_s or 0:,.0f}",
        f"{cached / (len(result.finished) * cell.input_tokens):.0%}",
        f"{figures.kv_cache_usage_max:.0%}",
        f"{figures.running_max:,}",
        f"{figures.preemptions:,}",
    )


def _milliseconds(spread: Quantiles | None) -> tuple[str, str, str]:
    if spread is None:
        return "-", "-", "-"
    return _figure(spread.p50), _figure(spread.p95), _figure(spread.p99)


def _figure(number: float) -> str:
    return f"{number:,.1f}" if number < FINE_BELOW else f"{number:,.0f}"


def _skipped(results: Sequence[CellResult]) -> list[str]:
    """A line for each reason."""
    by_reason: dict[str, list[Cell]] = {}
    for result in results:
        if result.status is CellStatus.SKIPPED:
            by_reason.setdefault(result.reason or "", []).append(result.cell)
    return [f"skipped: {_named(cells)}: {reason}" for reason, cells in by_reason.items()]


def _named(cells: Sequence[Cell]) -> str:
    """Cells by what they have in common."""
    if len(cells) == 1:
        return cells[0].text
    parts = {
        "in": {size_text(cell.input_tokens) for cell in cells},
        "out": {size_text(cell.output_tokens) for cell in cells},
        "at once": {f"{cell.concurrency:,}" for cell in cells},
    }
    common = [f"{values.pop()} {name}" for name, values in parts.items() if len(values) == 1]
    states = dict.fromkeys(cell.cache.text for cell in cells)
    common += [" and ".join(states)] if len(states) < len(CacheState) else []
    return f"{', '.join(common)} ({len(cells):,} cells)"


def _estimates(estimates: Mapping[Cell, float]) -> list[str]:
    """A line for each pair of lengths."""
    seconds: dict[tuple[int, int], float] = {}
    for cell, each in estimates.items():
        lengths = (cell.input_tokens, cell.output_tokens)
        seconds[lengths] = seconds.get(lengths, 0.0) + each
    return [
        f"{size_text(read)} in, {size_text(written)} out: about {duration(total)}"
        for (read, written), total in seconds.items()
    ]
