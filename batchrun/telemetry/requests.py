"""Request telemetry: `requests/<run_id>.parquet`, a row for each request that an engine gave back.

For diagnosis of single requests, and for nothing else: no gauge, no target, no scaling signal is made of it,
and no row of the output depends on it (`records.BatchMetrics` is what describes the job).

While a run goes on its rows stand in parts, `<run_id>.part-00000.parquet` and so on: each whole and durable,
so that a killed run leaves what it finished until at most `PART_SECONDS` before. `join_parts` makes one file
of the parts of a run that has ended, at its own end or at the start of the next run of the corpus. Both are
Parquet: `requests/*.parquet` is all there is, at any time.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from batchrun import atomic_file
from batchrun.closing import Closing
from batchrun.records import Observation

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary(16), nullable=False),  # of the call: its input_hash
        pa.field("document_key", pa.binary(16)),  # of the document that a part or a merge is for
        pa.field("stage", pa.string(), nullable=False),  # document, part or merge
        pa.field("attempt", pa.int32(), nullable=False),  # 1: the first
        pa.field("slice", pa.int32(), nullable=False),  # 0: the first
        pa.field("bucket", pa.string(), nullable=False),  # of input_tokens, prompt and all
        pa.field("input_tokens", pa.int64(), nullable=False),
        pa.field("output_tokens", pa.int64(), nullable=False),
        pa.field("cached_tokens", pa.int64(), nullable=False),
        pa.field("finish_reason", pa.string(), nullable=False),
        pa.field(
            "error_type", pa.string()
        ),  # the engine's; whether the text is a summary stands in the output
        pa.field("queue_ms", pa.float64()),  # from queued to scheduled
        pa.field("prefill_ms", pa.float64()),  # from scheduled to the first token
        pa.field("ttft_ms", pa.float64()),  # both together
        pa.field("decode_ms", pa.float64()),  # from the first token to the last
        pa.field("itl_p50", pa.float64()),  # ms between tokens; of some requests only
        pa.field("itl_p95", pa.float64()),
        pa.field("running", pa.int32(), nullable=False),  # sequences in the step that ended it
        pa.field("preemptions", pa.int32()),
        pa.field(
            "finished_at", pa.float64(), nullable=False
        ),  # seconds since the run's start, as batchrun saw it; the engine's time by its own clock
    ]
)
"""Null: the engine does not say. Times in milliseconds of the engine's own clock but for `finished_at`."""

PART_ROWS = 10_000
"""Rows that wait in memory at most, about 3 MB."""
PART_SECONDS = 30.0
JOINED_ROWS = 50_000
"""Rows of a row group of the joined file: small parts do not make small row groups."""
_PART, _SUFFIX = ".part-", ".parquet"

Labels = Callable[[npt.NDArray[np.int64]], Sequence[str]]
"""The labels of the buckets of lengths in tokens."""


class RequestLog(Closing):
    """Of one run, which is the only writer of its file. Raises OSError where the disk fails.

    `started` is the run's start by time.monotonic().
    """

    def __init__(self, folder: Path, run_id: str, started: float, labels: Labels) -> None:
        atomic_file.make_folder(folder)
        self._folder = folder
        self._run_id = run_id
        self._started = started
        self._labels = labels
        self._rows: list[tuple[Any, ...]] = []
        self._num_parts = 0
        self._written_at = time.monotonic()
        self._lock = Lock()

    def observe(self, observations: Iterable[Observation]) -> None:
        """Take requests, in the order in which they ended; what has waited long enough is made durable."""
        with self._lock:
            for observation in observations:
                self._rows.append(_row(observation, self._started))
                if len(self._rows) >= PART_ROWS:
                    self._write()
            if self._rows and time.monotonic() - self._written_at >= PART_SECONDS:
                self._write()

    def close(self) -> None:
        """Make durable what is left."""
        with self._lock:
            if self._rows:
                self._write()

    def _write(self) -> None:
        target = self._folder / f"{self._run_id}{_PART}{self._num_parts:05d}{_SUFFIX}"
        table = _table(self._rows, self._labels)
        with atomic_file.replacing(target, self._run_id) as temporary:
            pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)
        self._rows, self._num_parts, self._written_at = [], self._num_parts + 1, time.monotonic()


def join_parts(folder: Path, owner: str) -> None:
    """Make one file of the parts of each run, all of which have ended. Raises OSError where it can not write.

    Killed at any instant it goes on at the next call, and no row is lost or doubled then. Parts that can
    not be read, and with them the others of their run, are left as they are: no run ends for them.
    """
    for run_id, parts in _parts(folder).items():
        target = folder / f"{run_id}{_SUFFIX}"
        if target.exists() or _join(parts, target, owner):
            for part in parts:
                atomic_file.remove(part)


def _join(parts: Sequence[Path], target: Path, owner: str) -> bool:
    try:
        with (
            atomic_file.replacing(target, owner) as temporary,
            pq.ParquetWriter(temporary, SCHEMA, compression="zstd", write_page_checksum=True) as writer,
        ):
            for table in _filled(parts):
                writer.write_table(table, row_group_size=JOINED_ROWS)
    except _UnreadableError:
        return False
    return True


def _filled(parts: Iterable[Path]) -> Iterator[pa.Table]:
    """The tables of parts, as many of them together as fill a row group."""
    waiting: list[pa.Table] = []
    for part in parts:
        waiting.append(_read(part))
        if sum(map(len, waiting)) >= JOINED_ROWS:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _read(part: Path) -> pa.Table:
    try:
        with pq.ParquetFile(part, page_checksum_verification=True) as file:
            table = file.read()
    except (pa.ArrowException, OSError) as error:
        raise _UnreadableError(str(part)) from error
    if not table.schema.equals(SCHEMA):  # of another version
        raise _UnreadableError(str(part))
    return table


class _UnreadableError(Exception):
    pass


def _parts(folder: Path) -> dict[str, list[Path]]:
    found: defaultdict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.glob(f"*{_PART}*{_SUFFIX}"), key=lambda path: (len(path.name), path.name)):
        found[path.name.partition(_PART)[0]].append(path)
    return found


def _table(rows: Sequence[tuple[Any, ...]], labels: Labels) -> pa.Table:
    columns = dict(zip(_ROW, map(list, zip(*rows, strict=True)), strict=True))
    columns["bucket"] = list(labels(np.array(columns["input_tokens"], dtype=np.int64)))
    return pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)


_ROW = [name for name in SCHEMA.names if name != "bucket"]


def _row(observation: Observation, started: float) -> tuple[Any, ...]:
    """In the order of `_ROW`; the tokens themselves are not kept."""
    done = observation.completion
    return (
        observation.key,
        observation.document_key,
        observation.stage,
        observation.attempt,
        observation.slice_number,
        done.input_tokens,
        len(done.token_ids),
        done.cached_tokens,
        done.finish_reason.value,
        None if done.error_type is None else done.error_type.value,
        *(_NO_TIMES if done.times is None else done.times.milliseconds()),
        observation.running,
        None if done.times is None else done.times.num_preemptions,
        observation.finished_at - started,
    )


_NO_TIMES = (None,) * 6
