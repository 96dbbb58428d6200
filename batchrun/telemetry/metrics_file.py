"""The batch completion metrics as a file in Prometheus' text format, for the node exporter's textfile collector.

Nothing in it is of single requests. What an autoscaler of the batch pool may read is named in `SCALING`.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from batchrun.run_record import RunRecord, RunState

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

SCALING = {
    "waiting_prefill_tokens": "Prompt tokens that wait to be read.",
    "running_decode_sequences": "Sequences in the engine.",
    "kv_cache_usage": "Share of the KV cache in use, 0 to 1.",
    "oldest_wait_seconds": "Since the oldest pending document was first planned, over all runs.",
    "seconds_to_completion": "Until the run ends, as foretold; NaN where nothing is known.",
}
OTHERS = {
    "slack_seconds": "By which the run ends before its window does; NaN without a window.",
    "prefill_tokens_per_second": "Prompt tokens read a second, over the run.",
    "decode_tokens_per_second": "Output tokens written a second, over the run.",
    "num_preemptions": "Sequences that the engine preempted in this run.",
    "num_engine_deaths": "Engines that died and were started again in this run.",
    "idle_seconds": "In which the engine had nothing to compute in this run.",
    "peak_memory_bytes": "The most memory that the run's process had resident.",
    "gpu_utilization": "Share of time with a kernel at work, the mean over the run; NaN without a GPU.",
    "gpu_memory_bytes": "The most GPU memory in use, whoever uses it; NaN without a GPU.",
}
STATUSES = ("ok", "failed", "skipped", "pending")


class MetricsFile:
    """Written anew, under another name and renamed, whenever the record of a run is. Where it can not be, `note` is
    told so once, and the run goes on.

    `earlier`: records of the runs before, for the last success and the last completion.
    """

    def __init__(self, path: Path, earlier: Iterable[RunRecord], note: Callable[[str], None]) -> None:
        self._path = path
        self._note = note
        self._has_failed = False
        ended = [record for record in earlier if record.exit_code is not None]
        self._last_success = max((_moment(one) for one in ended if one.exit_code == 0), default=0.0)
        self._last_completion = max(
            (_moment(one) for one in ended if one.state is RunState.COMPLETE), default=0.0
        )

    def write(self, record: RunRecord) -> None:
        """The file as of this record."""
        from prometheus_client import write_to_textfile

        if record.exit_code == 0:
            self._last_success = _moment(record)
        if record.state is RunState.COMPLETE:
            self._last_completion = _moment(record)
        try:
            write_to_textfile(str(self._path), self._registry(record))
        except OSError as error:
            if not self._has_failed:
                self._note(f"the metrics can not be written: {error}")
            self._has_failed = True

    def _registry(self, record: RunRecord) -> "CollectorRegistry":
        from prometheus_client import CollectorRegistry, Gauge

        registry = CollectorRegistry()
        labels = {"job_id": record.job_id, "seed": str(record.seed), "corpus": record.corpus_id}

        families: dict[str, Gauge] = {}

        def gauge(name: str, text: str, value: float | None, **more: str) -> None:
            if name not in families:
                families[name] = Gauge(f"batchrun_{name}", text, [*labels, *more], registry=registry)
            families[name].labels(**labels, **more).set(float("nan") if value is None else value)

        gauge("last_success_timestamp_seconds", "When a run last ended with exit code 0.", self._last_success)
        gauge("last_completion_timestamp_seconds", "When a run last completed.", self._last_completion)
        gauge("running", "Whether a run is under way.", float(record.state is RunState.RUNNING))
        gauge("exit_code", "Of the run; NaN while it is under way.", record.exit_code)
        for phase in ("planning", "loading", "running", "publishing", "total"):
            seconds = getattr(record.seconds, phase)
            gauge("phase_duration_seconds", "Of the run, by phase.", seconds, phase=phase)
        for status in STATUSES:
            gauge("rows", "Rows of the corpus by status.", getattr(record.rows, status), status=status)
        for kind in ("input", "output", "cached", "recomputed"):
            gauge("tokens", "Tokens of the run by type.", getattr(record.tokens, kind), type=kind)
        for name, text in (SCALING | OTHERS).items():
            gauge(name, text, getattr(record.metrics, name))
        return registry


def _moment(record: RunRecord) -> float:
    return datetime.fromisoformat(record.updated_at).timestamp() if record.updated_at else 0.0
