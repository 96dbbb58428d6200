"""The timeline of a run: bounded, durable, and whole at the end."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from batchrun.telemetry import timeline
from batchrun.telemetry.timeline import SCHEMA, Sample, Timeline, read_timeline
from tests.commands import Bench, texts


def sample(seconds: float) -> Sample:
    counts: dict[str, Any] = {name: int(10 * seconds) for name in SCHEMA.names}
    return Sample(**counts | {"seconds": seconds, "idle_seconds": 0.0, "kv_cache_usage": 0.5})


def test_a_long_night_costs_no_more_than_a_short_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second sample is forgotten when there are many; the first and the last stay, and counts are totals."""
    monkeypatch.setattr(timeline, "MOST_SAMPLES", 64)
    taken = Timeline(tmp_path, "run")
    for number in range(10_000):
        taken.add(sample(number / 2))
    taken.end(sample(5000))
    found = read_timeline(tmp_path, "run", 0.0)
    assert 32 <= found.num_rows <= 65
    seconds = found["seconds"].to_pylist()
    assert [0.0, 5000.0] == [seconds[0], seconds[-1]]
    assert max(after - before for before, after in pairwise(seconds)) < 5000 / 16
    assert [int(10 * each) for each in seconds] == found["decode_tokens"].to_pylist()


def test_what_is_lost_or_damaged_is_empty(tmp_path: Path) -> None:
    """Nobody needs a timeline to go on."""
    assert SCHEMA.empty_table() == read_timeline(tmp_path, "run", 0.0)
    (tmp_path / "run.parquet").write_bytes(b"PAR1 no more")
    assert SCHEMA.empty_table() == read_timeline(tmp_path, "run", 0.0)


def test_a_timeline_without_running_seconds_is_read(tmp_path: Path) -> None:
    """As it was written before: they are those since the engine was loaded."""
    written = Timeline(tmp_path, "run")
    for second in range(5):
        written.add(sample(second))
    written.write()
    path = timeline.timeline_of(tmp_path, "run")
    before = pq.read_table(path)
    pq.write_table(before.drop_columns("running_seconds"), path)
    found = read_timeline(tmp_path, "run", 2.0)
    assert SCHEMA == found.schema
    assert [0.0, 0.0, 0.0, 1.0, 2.0] == found["running_seconds"].to_pylist()
    assert before.drop_columns("running_seconds") == found.drop_columns("running_seconds")


def test_a_run_leaves_its_timeline(bench: Bench) -> None:
    """The last sample has the counts of the record; the record has the engine's limits."""
    bench.submit(bench.corpus(texts(40)))
    [path] = bench.home.glob("checkpoints/*/seed-0/corpora/*/timelines/*.parquet")
    last = pq.read_table(path).to_pylist()[-1]
    [record] = bench.run("status", "--json").json
    assert [40, 40] == [last["documents"], record["rows"]["computed"]]
    assert record["tokens"]["input"] == last["prefill_tokens"] + last["cached_tokens"]
    assert record["tokens"]["output"] == last["decode_tokens"]
    seconds = record["seconds"]
    assert 0 < last["running_seconds"]
    assert last["seconds"] == pytest.approx(
        seconds["planning"] + seconds["loading"] + last["running_seconds"], abs=0.1
    )
    assert 512 == record["limits"]["max_model_len"]
