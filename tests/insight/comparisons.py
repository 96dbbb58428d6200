"""Runs of the simulator that are compared."""

import json
from pathlib import Path
from typing import Any

from tests.commands import Bench, Result, set_engine

RATES = {
    "prefill_tokens_per_s": 4000,
    "decode_tokens_per_s": 1000,
    "decode_half_batch": 8,
    "output_tokens": 12,
    "clock": "virtual",
}


def spec(bench: Bench, name: str, *, max_num_seqs: int = 32, **options: Any) -> Path:
    lines = (f"{key} = {json.dumps(value)}" for key, value in (RATES | options).items())
    path = bench.write_spec("\n".join(lines), name=name)
    set_engine(path, max_num_seqs=max_num_seqs)
    return path


def run(bench: Bench, name: str, corpus: Path, *arguments: object) -> Result:
    return bench.submit(corpus, "--job", name, "-o", bench.home / f"{name}.parquet", *arguments)


def compared(bench: Bench, *arguments: object) -> dict[str, Any]:
    result = bench.run("compare", *arguments, "--json")
    assert result.code in (0, 3), result.err
    found: dict[str, Any] = result.json
    return found


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {figure["metric"]: figure["verdict"] for figure in found["figures"]}


def figure(found: dict[str, Any], metric: str) -> dict[str, Any]:
    [one] = [figure for figure in found["figures"] if figure["metric"] == metric]
    return dict(one)


def left_out(found: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [tuple(each[name] for name in ("of", "side", "number", "total")) for each in found["exclusions"]]
