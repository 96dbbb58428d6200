"""A run that is reported, and its files as they might be."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.commands import Bench
from tests.insight.pages import Page


def run_record(bench: Bench) -> Path:
    [path] = bench.home.glob("checkpoints/*/seed-0/corpora/*/runs/*.json")
    return path


def remove(bench: Bench, pattern: str) -> None:
    found = list(bench.home.glob(f"checkpoints/*/seed-0/corpora/*/{pattern}"))
    assert found
    for path in found:
        path.unlink()


def change_timeline(bench: Bench, change: Callable[[pa.Table], pa.Table]) -> None:
    [path] = bench.home.glob("checkpoints/*/seed-0/corpora/*/timelines/*.parquet")
    pq.write_table(change(pq.read_table(path)), path)


def with_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type))


def change_record(bench: Bench, **changes: Any) -> None:
    """A dictionary changes what it names."""
    path = run_record(bench)
    record = json.loads(path.read_bytes())
    for name, value in changes.items():
        record[name] = record[name] | value if isinstance(value, dict) else value
    path.write_text(json.dumps(record))


def heading(page: Page) -> str:
    node = page.tree.css_first("h1")
    assert node is not None
    return node.text()
