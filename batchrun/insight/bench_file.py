"""A bench file: what `batchrun bench` measured of one engine, as Parquet.

A *cell* of the matrix is one length of input, one length of output, a number of requests kept in the engine at
once, and a state of the prefix cache. The file has a row for each request of a cell, with the cell's own
figures repeated in it, and one row with nulls for a cell without requests: what does not fit, what was not
begun. So `SELECT` reads the whole matrix, and the files of several machines can be read together. The
metadata hold `About` as JSON under the key `batchrun`, with `"kind": "bench"`.

All percentiles are to be taken from the rows: `ttft_ms` of the requests, and `itl_ms`, which holds every gap
between two tokens of a request.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from batchrun import atomic_file
from batchrun.errors import ConfigError, CorpusError, CorpusNotFoundError, OutputError
from batchrun.insight.bench_cells import (
    CacheState,
    Cell,
    CellFigures,
    CellResult,
    CellStatus,
    MeasuredRequest,
    quantiles,
)
from batchrun.profile import Subject
from batchrun.store.target import METADATA_KEY, check_target

KIND = "bench"
VERSION = 1
"""Of the file's form; another one is not read."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured, with what, and when. `of` has the engine, its version, the model's content id, dtype,
    device and options; `model` its name; `limits` are `EngineLimits` by name; `spec` is the job's.
    """

    of: Subject
    model: str
    batchrun: str
    limits: dict[str, int] = {}
    spec: dict[str, Any] = {}
    measured_at: str = ""
    kind: str = KIND
    version: int = VERSION


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A bench file as read, its cells in the order in which they are measured."""

    about: About
    cells: tuple[CellResult, ...]


_ABOUT = [
    pa.field(name, pa.string(), nullable=False)
    for name in ("engine", "engine_version", "model", "model_content", "dtype", "device", "batchrun_version")
]
_CELL = [
    pa.field("input_tokens", pa.int32(), nullable=False),
    pa.field("output_tokens", pa.int32(), nullable=False),
    pa.field("concurrency", pa.int32(), nullable=False),
    pa.field("cache", pa.string(), nullable=False),
]
_STATUS = [
    pa.field("cell_status", pa.string(), nullable=False),
    pa.field("cell_reason", pa.string()),
]
_FIGURES = [
    pa.field("cell_seconds", pa.float64()),
    pa.field("cell_read_tokens", pa.int64()),
    pa.field("cell_written_tokens", pa.int64()),
    pa.field("cell_preemptions", pa.int32()),
    pa.field("cell_kv_cache_usage_max", pa.float64()),
    pa.field("cell_running_max", pa.int32()),
    pa.field("cell_waiting_max", pa.int32()),
    pa.field("cell_memory_bytes_max", pa.int64()),
    pa.field("cell_gpu_memory_bytes_max", pa.int64()),
]
_REQUEST = [
    pa.field("request", pa.int32()),  # 0: the first of the cell that ended
    pa.field("queue_ms", pa.float64()),
    pa.field("prefill_ms", pa.float64()),
    pa.field("ttft_ms", pa.float64()),
    pa.field("decode_ms", pa.float64()),
    pa.field("itl_p50", pa.float64()),  # ms, of this request's gaps
    pa.field("itl_p95", pa.float64()),
    pa.field("itl_p99", pa.float64()),
    pa.field("itl_ms", pa.list_(pa.float32())),
    pa.field("num_output", pa.int32()),
    pa.field("cached_tokens", pa.int32()),
    pa.field("running", pa.int32()),
    pa.field("preemptions", pa.int32()),
    pa.field("finished_s", pa.float64()),
    pa.field("error_type", pa.string()),
]
SCHEMA = pa.schema([*_ABOUT, *_CELL, *_STATUS, *_FIGURES, *_REQUEST])


class BenchFile:
    """Holds the matrix, and writes it anew, durably, whenever a cell is put: from the first one on of which a request
    was measured, so that an earlier bench is replaced by something. For one thread.

    Raises OutputError where `path` is something else than a bench file, or its folder can not be written; and
    OSError where the disk fails.
    """

    def __init__(self, path: Path, about: About, cells: Sequence[CellResult]) -> None:
        check_bench_target(path)
        self.path = path
        self._schema = SCHEMA.with_metadata({METADATA_KEY: msgspec.json.encode(about)})
        self._about = _about_columns(about)
        self._tables = {result.cell: self._table(result) for result in cells}
        self.is_written = False

    def put(self, result: CellResult) -> None:
        """Take a result in place of what stood for its cell."""
        self._tables[result.cell] = self._table(result)
        if not (self.is_written or result.finished):
            return
        with atomic_file.replacing(self.path, f"bench-{os.getpid()}") as temporary:
            table = pa.concat_tables(self._tables.values())
            pq.write_table(table, temporary, compression="zstd")
        self.is_written = True

    def _table(self, result: CellResult) -> pa.Table:
        rows = [self._about | row for row in _rows(result)]
        return pa.Table.from_pylist(rows, schema=self._schema)


def check_bench_target(path: Path) -> None:
    """Raise OutputError where `path` can not be written, or is something else than a bench file."""
    check_target(path, [])
    if path.exists() and _read_about(path) is None:
        raise OutputError(
            f"{path} exists and is no bench file; it is not overwritten",
            "Move it away, or give another path with -o.",
        )


def read_bench(path: Path) -> Bench:
    """What a bench file holds. Raises CorpusNotFoundError, CorpusError where `path` is none, and ConfigError where it is
    one of another version's form.
    """
    hint = "Name a file that `batchrun bench` wrote."
    about = _read_about(path)
    if about is None:
        if not path.exists():
            raise CorpusNotFoundError(f"{path} is not there", hint)
        raise CorpusError(f"{path} is no bench file", hint)
    if about.version != VERSION:
        reason = f"{path} has version {about.version} of its form, this batchrun reads {VERSION}"
        raise ConfigError(reason, "Measure again: batchrun bench")
    try:
        rows = pq.read_table(path, schema=SCHEMA).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(f"{path} can not be read: {error}", hint) from error
    grouped = groupby(rows, key=lambda row: [row[field.name] for field in _CELL])
    return Bench(about=about, cells=tuple(_result(list(group)) for _, group in grouped))


class _Form(msgspec.Struct):
    kind: str
    version: int


def _read_about(path: Path) -> About | None:
    try:
        data = (pq.read_schema(path).metadata or {}).get(METADATA_KEY, b"")
        if msgspec.json.decode(data, type=_Form).kind != KIND:
            return None
        return msgspec.json.decode(data, type=About)
    except (OSError, pa.ArrowException, msgspec.MsgspecError):
        return None


def _about_columns(about: About) -> dict[str, str]:
    of = about.of
    values = (of.engine, of.engine_version, about.model, of.model, of.dtype, of.device, about.batchrun)
    return dict(zip((field.name for field in _ABOUT), values, strict=True))


def _rows(result: CellResult) -> Iterator[dict[str, Any]]:
    figures = {} if result.figures is None else asdict(result.figures)
    cell = (
        asdict(result.cell)
        | {"cell_status": result.status, "cell_reason": result.reason}
        | {f"cell_{name}": value for name, value in figures.items()}
    )
    for number, request in enumerate(result.requests):
        spread = quantiles(request.itl_ms)
        percentiles = {f"itl_{name}": value for name, value in asdict(spread).items()} if spread else {}
        yield cell | {"request": number} | _plain(request) | percentiles
    if not result.requests:
        yield cell


def _plain(request: MeasuredRequest) -> dict[str, Any]:
    return {field.name: getattr(request, field.name) for field in fields(request)}


def _result(rows: list[dict[str, Any]]) -> CellResult:
    first = rows[0]
    cell = {field.name: first[field.name] for field in _CELL}
    figures = {field.name.removeprefix("cell_"): first[field.name] for field in _FIGURES}
    return CellResult(
        cell=Cell(**cell | {"cache": CacheState(cell["cache"])}),
        status=CellStatus(first["cell_status"]),
        reason=first["cell_reason"],
        figures=None if first["cell_seconds"] is None else CellFigures(**figures),
        requests=tuple(_request(row) for row in rows if row["request"] is not None),
    )


def _request(row: dict[str, Any]) -> MeasuredRequest:
    values = {field.name: row[field.name] for field in fields(MeasuredRequest)}
    return MeasuredRequest(**values | {"itl_ms": tuple(row["itl_ms"])})
