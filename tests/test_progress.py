"""The numbers of a run, read from a worker as it stands."""

from types import SimpleNamespace
from typing import Any

from batchrun.engines.base import EngineSnapshot
from batchrun.planning.work import WorkCounts
from batchrun.progress import Progress
from batchrun.run_record import RunRecord, RunState
from batchrun.worker.tally import FeedingTally, Tally

COUNTS = WorkCounts(
    total=100, skipped=0, unusable=0, duplicate=0, reused=0, to_run=100, to_run_tokens=100_000
)


def numbers(snapshot: EngineSnapshot, estimate: Any = None, **of_worker: Any) -> RunRecord:
    values = {
        "snapshot": lambda: snapshot,
        "loaded_at": 1.0,
        "running_seconds": 1.0,
        "loading_seconds": 1.0,
        "engine_label": "lead",
        "tally": Tally(),
        "feeding": FeedingTally(),
        "engine_deaths": [],
        "store_wait_seconds": 0.0,
        "collector_wait_seconds": 0.0,
        "num_recalled_tokens": 0,
        "cpu_seconds": {},
    }
    worker: Any = SimpleNamespace(**values | {"limits": None} | of_worker)
    gpus: Any = SimpleNamespace(use=lambda: SimpleNamespace(utilization=None, memory_bytes=None))
    record = RunRecord(job_id="j", run_id="r", seed=0, corpus_id="c", corpus=[], state=RunState.RUNNING)
    return Progress(worker, COUNTS, 0.0, gpus, estimate).of(record)


def test_what_slices_read_again_is_no_progress() -> None:
    """Forty prompts of 1,000 tokens were given to the engine, and with three slices each 120,000 tokens to it. Sixty
    prompts wait to be read; 4,000 tokens were computed again.
    """
    told = []

    def seconds_left(done: Any) -> float:
        told.append(done)
        return 1.0

    estimate = SimpleNamespace(seconds_left=seconds_left, ceiling_share=lambda _: None)
    record = numbers(
        EngineSnapshot(running=8, computed_tokens=44_000, cached_tokens=76_000, output_tokens=30_000),
        estimate,
        num_admitted_tokens=40_000,
        num_cached_again=76_000,
        num_further=32,
    )
    assert 60_000 == record.metrics.waiting_prefill_tokens
    assert 4_000 == record.tokens.recomputed
    assert [(40_000, 30_000, 40)] == [(done.read, done.written, done.running) for done in told]


def test_what_an_earlier_run_wrote_is_not_this_runs_speed() -> None:
    """An output of 2,000 tokens of which this run decoded the last 500 counts as 500 in its rate."""
    record = numbers(
        EngineSnapshot(output_tokens=500),
        tally=Tally(ok=1, output_tokens=2000),
        num_admitted_tokens=0,
        num_cached_again=0,
        num_further=0,
    )
    assert 500.0 == record.metrics.decode_tokens_per_second
