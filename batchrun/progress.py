"""How far a run is: its counts, seconds and batch metrics, from the worker as it stands."""

import time
from dataclasses import asdict, replace
from datetime import UTC, datetime

from batchrun.engines.base import EngineSnapshot
from batchrun.estimate import Done, Estimate
from batchrun.memory import peak_memory_bytes
from batchrun.planning.work import WorkCounts
from batchrun.run_record import BatchMetrics, RowCounts, RunRecord, TokenCounts
from batchrun.telemetry.gpus import Gpus, GpuUse
from batchrun.telemetry.timeline import Sample
from batchrun.window import Window
from batchrun.worker.worker import Worker


class Progress:
    """Reads a worker that runs `counts`; times are seconds of the monotonic clock.

    With an `estimate` it tells the time left by length, and the share of the engine's ceiling; without one
    the time left is that of the input tokens left at the speed so far.
    """

    def __init__(
        self,
        worker: Worker,
        counts: WorkCounts,
        run_started: float,
        gpus: Gpus,
        estimate: Estimate | None = None,
        window: Window | None = None,
    ) -> None:
        self._estimate = estimate
        self._window = window or Window()
        self._worker = worker
        self._counts = counts
        self._run_started = run_started
        self._gpus = gpus

    def of(self, record: RunRecord) -> RunRecord:
        """The record with the numbers of this moment."""
        now = time.monotonic()
        worker, snapshot = self._worker, self._worker.snapshot()
        running = worker.running_seconds
        return replace(
            record,
            engine=worker.engine_label,
            limits=_limits(worker),
            rows=self._rows(),
            tokens=self._tokens(snapshot),
            flagged=dict(worker.tally.flagged),
            seconds=replace(
                record.seconds,
                total=now - self._run_started,
                loading=worker.loading_seconds,
                running=running,
            ),
            metrics=self._metrics(snapshot, running, record.first_planned_at),
        )

    def sample(self, record: RunRecord) -> Sample:
        """What the timeline keeps of this moment; `record` is that of the moment. Time and counts are read together: a
        simulated night goes on by minutes while something else is read.
        """
        worker, metrics = self._worker, record.metrics
        running, snapshot, feeding = worker.running_seconds, worker.snapshot(), worker.feeding
        return Sample(
            seconds=record.seconds.planning + record.seconds.loading + running,
            running_seconds=running,
            documents=record.rows.computed,
            failed=self._worker.tally.failed,
            prefill_tokens=snapshot.computed_tokens,
            cached_tokens=snapshot.cached_tokens,
            decode_tokens=snapshot.output_tokens,
            padded_tokens=snapshot.padded_tokens,
            preemptions=snapshot.num_preemptions,
            num_steps=feeding.num_steps,
            starved_steps=feeding.starved_steps,
            idle_seconds=feeding.idle_seconds,
            running=snapshot.running,
            waiting=snapshot.waiting,
            kv_cache_usage=snapshot.kv_cache_usage,
            kv_cache_usage_max=feeding.kv_cache_usage_max,
            waiting_prefill_tokens=metrics.waiting_prefill_tokens,
        )

    def _rows(self) -> RowCounts:
        before, tally = rows_before(self._counts), self._worker.tally
        return replace(
            before, computed=tally.computed, ok=before.ok + tally.ok, failed=before.failed + tally.failed
        )

    def _tokens(self, snapshot: EngineSnapshot) -> TokenCounts:
        worker, tally = self._worker, self._worker.tally
        due = worker.num_admitted_tokens + worker.num_cached_again
        recomputed = snapshot.computed_tokens + snapshot.cached_tokens - due
        return TokenCounts(
            input=tally.input_tokens,
            output=tally.output_tokens,
            cached=tally.cached_tokens,
            recomputed=max(0, recomputed),
        )

    def _metrics(
        self, snapshot: EngineSnapshot, running: float, first_planned_at: str | None
    ) -> BatchMetrics:
        worker, tally, to_run = self._worker, self._worker.tally, self._counts.to_run_tokens
        in_engine = snapshot.computed_tokens + snapshot.cached_tokens  # what slices read again among them
        read = max(tally.input_tokens, min(in_engine, worker.num_admitted_tokens))
        written = snapshot.output_tokens  # by this run: an output may have been begun by an earlier one
        left = max(0, to_run - tally.input_tokens - worker.num_recalled_tokens)
        done = Done(
            documents=tally.computed,
            input_tokens=tally.input_tokens,
            running=snapshot.running + worker.num_further,
            read=read,
            written=written,
            seconds=running,
        )
        gpus = self._gpus.use() if worker.loaded_at else GpuUse()
        seconds_left = self._seconds_left(done, left)
        return BatchMetrics(
            waiting_prefill_tokens=max(0, to_run - worker.num_admitted_tokens - worker.num_recalled_tokens),
            running_decode_sequences=snapshot.running,
            kv_cache_usage=snapshot.kv_cache_usage,
            num_preemptions=snapshot.num_preemptions,
            padding_share=_padding_share(snapshot),
            prefill_tokens_per_second=read / running if running else 0.0,
            decode_tokens_per_second=written / running if running else 0.0,
            oldest_wait_seconds=_seconds_since(first_planned_at) if left > 0 else 0.0,
            seconds_to_completion=seconds_left,
            slack_seconds=self._slack(seconds_left),
            ceiling_share=self._estimate.ceiling_share(done) if self._estimate else None,
            store_wait_seconds=worker.store_wait_seconds,
            collector_wait_seconds=worker.collector_wait_seconds,
            cpu_seconds=worker.cpu_seconds,
            num_engine_deaths=len(worker.engine_deaths),
            num_steps=worker.feeding.num_steps,
            starved_steps=worker.feeding.starved_steps,
            idle_seconds=worker.feeding.idle_seconds,
            num_slices=worker.feeding.num_slices,
            peak_memory_bytes=peak_memory_bytes(),
            gpu_utilization=gpus.utilization,
            gpu_memory_bytes=gpus.memory_bytes,
        )

    def _slack(self, seconds_left: float | None) -> float | None:
        if seconds_left is None or not self._window.is_bounded:
            return None
        return self._window.seconds_to_work(self._counts.total) - seconds_left

    def _seconds_left(self, done: Done, tokens_left: int) -> float | None:
        if self._estimate is not None:
            return self._estimate.seconds_left(done)
        tokens = done.input_tokens or done.read
        return tokens_left * done.seconds / tokens if tokens else None


def _limits(worker: Worker) -> dict[str, int]:
    return (
        {} if worker.limits is None else {name: int(value) for name, value in asdict(worker.limits).items()}
    )


def rows_before(counts: WorkCounts) -> RowCounts:
    """Before publication, which counts every row: what is reused counts as ok."""
    return RowCounts(
        total=counts.total,
        ok=counts.reused,
        failed=counts.unusable,
        skipped=counts.skipped,
        reused=counts.reused,
        duplicate=counts.duplicate,
    )


def _padding_share(snapshot: EngineSnapshot) -> float:
    return snapshot.padded_tokens / max(1, snapshot.padded_tokens + snapshot.computed_tokens)


def _seconds_since(moment: str | None) -> float:
    if moment is None:
        return 0.0
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())
