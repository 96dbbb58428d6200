"""The timeline: `timelines/<run_id>.parquet`, the batch completion metrics of a run as they went.

Samples of a running total and a few gauges, whatever single requests did: what a report draws over time, and a
capacity plan counts in windows. Bounded: when there are `MOST_SAMPLES` every second one is forgotten, and from then
on they are taken half as often. Counts are running totals, so that what is forgotten costs resolution alone.
"""

import time
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from batchrun import atomic_file

MOST_SAMPLES = 2048
EVERY_SECONDS = 0.5
WRITE_SECONDS = 30.0
"""What a killed run loses of its timeline at most."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A moment. `seconds` since the run's start, in which the engine's time is by its own clock: that of a simulator
    may be faster; `running_seconds` those of them in which there was an engine. Counts since then: `documents` that ended, `prefill_tokens` computed (again, too), and so on.
    """

    seconds: float
    running_seconds: float
    documents: int
    failed: int
    prefill_tokens: int
    cached_tokens: int
    decode_tokens: int
    padded_tokens: int
    preemptions: int
    num_steps: int
    starved_steps: int
    idle_seconds: float
    running: int  # sequences, now
    waiting: int  # requests in the engine's queue, now
    kv_cache_usage: float  # a share, now
    kv_cache_usage_max: float  # after any step so far
    waiting_prefill_tokens: int  # not given to the engine, now


SCHEMA = pa.schema(
    [
        pa.field(name, pa.float64() if kind is float else pa.int64(), nullable=False)
        for name, kind in Sample.__annotations__.items()
    ]
)
_RUNNING = SCHEMA.get_field_index("running_seconds")


class Timeline:
    """Of one run, which is the only writer of its file."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self._folder, self._run_id = folder, run_id
        self._samples: list[Sample] = []
        self._every = EVERY_SECONDS
        self._written_at = time.monotonic()

    def add(self, sample: Sample) -> None:
        """Take a sample where one is due; write the file where that is. Raises OSError."""
        if self._samples and sample.seconds - self._samples[-1].seconds < self._every:
            return
        self._samples.append(sample)
        if len(self._samples) >= MOST_SAMPLES:
            self._samples = self._samples[::2]
            self._every *= 2
        if time.monotonic() - self._written_at >= WRITE_SECONDS:
            self.write()

    def end(self, sample: Sample) -> None:
        """The last sample, whenever the one before was; then write the file. Raises OSError."""
        self._samples.append(sample)
        self.write()

    def write(self) -> None:
        self._written_at = time.monotonic()
        columns = [[getattr(sample, name) for sample in self._samples] for name in SCHEMA.names]
        atomic_file.make_folder(self._folder)
        with atomic_file.replacing(timeline_of(self._folder, self._run_id), self._run_id) as temporary:
            pq.write_table(pa.table(columns, schema=SCHEMA), temporary, compression="zstd")


def timeline_of(folder: Path, run_id: str) -> Path:
    return folder / f"{run_id}.parquet"


def read_timeline(folder: Path, run_id: str, loaded_at: float) -> pa.Table:
    """A table of `SCHEMA`, by time; empty where there is none or it is damaged. One that was written before it had
    `running_seconds` is given those since `loaded_at`, which are right where no engine was started again.
    """
    try:
        found = pq.read_table(timeline_of(folder, run_id))
    except (OSError, pa.ArrowException):
        return SCHEMA.empty_table()
    if found.schema.equals(SCHEMA.remove(_RUNNING)):
        running = np.maximum(found["seconds"].to_numpy() - loaded_at, 0.0)
        found = found.add_column(_RUNNING, SCHEMA.field(_RUNNING), [running])
    return found if found.schema.equals(SCHEMA) else SCHEMA.empty_table()
