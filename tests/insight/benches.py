"""Benches of the simulator."""

from typing import Any

from batchrun.insight.bench_cells import CellResult
from batchrun.insight.bench_file import Bench, read_bench
from tests.commands import Bench as Workbench
from tests.commands import Result, set_engine

OPTIONS: dict[str, Any] = {
    "prefill_tokens_per_s": 1000,
    "decode_tokens_per_s": 100,
    "decode_half_batch": 4,  # a step of n sequences takes (n + 4) / 100 s
    "kv_tokens": 40_000,
    "output_tokens": 3,  # what outputs would be, if they had not to be as long as asked for
    "clock": "virtual",
}
SMALL = ("--inputs", "128,512", "--outputs", "16", "--concurrency", "1,4")


def write_spec(bench: Workbench, **options: Any) -> None:
    """A simulator that reads 1,000 tokens/s, and writes 20 of one sequence or 50 of four."""
    lines = [
        f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {str(value).lower()}"
        for name, value in (OPTIONS | options).items()
    ]
    spec = bench.write_spec("\n".join(lines))
    set_engine(spec, max_model_len=2048, max_num_batched_tokens=2048, max_num_seqs=16)


def run(bench: Workbench, *arguments: str) -> Result:
    return bench.run("bench", *arguments, "-o", bench.home / "bench.parquet", "--json")


def read(bench: Workbench) -> Bench:
    return read_bench(bench.home / "bench.parquet")


def by_cell(found: Bench) -> dict[tuple[int, int, int, str], CellResult]:
    return {
        (one.cell.input_tokens, one.cell.output_tokens, one.cell.concurrency, one.cell.cache.value): one
        for one in found.cells
    }
