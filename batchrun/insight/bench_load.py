"""A load: requests given to an engine so that a fixed number of them is in it, and what was seen of them."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

from batchrun.engines.base import Engine, EngineConfig, EngineDeadError, clock_of
from batchrun.errors import EngineUnavailableError
from batchrun.insight.bench_cells import CellFigures, MeasuredRequest
from batchrun.records import Completion, Request
from batchrun.telemetry.gpus import Gpus

MEMORY_SECONDS = 0.5
"""Between two looks at the memory of the processes."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Requests in the order in which they ended; `is_whole`: all that were to be measured did. `errors`: what the
    engine said of those that failed, `death`: its last words, if it died. `figures` are from when the first of
    them was given to when the last ended.
    """

    figures: CellFigures
    requests: tuple[MeasuredRequest, ...]
    errors: tuple[str, ...]
    is_whole: bool
    death: str | None


class Load:
    """Of one engine, which has nothing else to do. `is_over` is asked before every step."""

    def __init__(self, engine: Engine, config: EngineConfig, is_over: Callable[[], bool]) -> None:
        self._engine = engine
        self._config = config
        self._clock = clock_of(engine)
        self._is_over = is_over

    def run(
        self,
        requests: Sequence[Request],
        concurrency: int,
        before: Sequence[Request] = (),
        after: Sequence[Request] = (),
    ) -> Measured:
        """Measure requests, the next one given when one has ended; others before and after them are not told. What
        is in the engine at the end, or when the time is over, is aborted. Raises EngineUnavailableError where the
        engine tells no times.
        """
        waiting, in_flight = deque([*before, *requests, *after]), set[str]()
        left = {request.request_id for request in requests}
        first = requests[0].request_id if requests else None
        measured: list[MeasuredRequest] = []
        errors: list[str] = []
        death = None
        watch = _Watch(self._engine, self._config)
        started = self._clock()
        try:
            while left and not self._is_over():
                while waiting and len(in_flight) < concurrency:
                    if waiting[0].request_id == first:
                        watch, started = _Watch(self._engine, self._config), self._clock()
                    self._engine.add(waiting[0])
                    in_flight.add(waiting.popleft().request_id)
                completions = self._engine.step()
                running = watch.look(len(completions))
                for one in completions:
                    in_flight.remove(one.request_id)
                    if one.request_id in left:
                        left.remove(one.request_id)
                        measured.append(_measured(one, running, self._clock() - started))
                        errors += [one.error or "it does not say why"] if one.error_type else []
        except EngineDeadError as error:
            death = str(error)
        figures = watch.figures(self._clock() - started)
        self._engine.abort(in_flight)
        return Measured(
            figures=figures,
            requests=tuple(measured),
            errors=tuple(errors),
            is_whole=not left,
            death=death,
        )


class _Watch:
    """What an engine and its processes show while a cell is measured."""

    def __init__(self, engine: Engine, config: EngineConfig) -> None:
        self._engine = engine
        self._before = engine.snapshot()
        self._gpus = Gpus(config)
        self._kv_cache_usage = 0.0
        self._running = self._waiting = self._memory_bytes = 0
        self._gpu_memory_bytes: int | None = None
        self._read_at = 0.0

    def look(self, num_ended: int) -> int:
        """After a step that ended so many requests; how many sequences were in it."""
        now = self._engine.snapshot()
        running = now.running + num_ended
        self._kv_cache_usage = max(self._kv_cache_usage, now.kv_cache_usage)
        self._running, self._waiting = max(self._running, running), max(self._waiting, now.waiting)
        if time.monotonic() - self._read_at >= MEMORY_SECONDS:
            self._read_memory()
        return running

    def figures(self, seconds: float) -> CellFigures:
        self._read_memory()
        before, now = self._before, self._engine.snapshot()
        return CellFigures(
            seconds=seconds,
            read_tokens=now.computed_tokens - before.computed_tokens,
            written_tokens=now.output_tokens - before.output_tokens,
            preemptions=now.num_preemptions - before.num_preemptions,
            kv_cache_usage_max=self._kv_cache_usage,
            running_max=self._running,
            waiting_max=self._waiting,
            memory_bytes_max=self._memory_bytes,
            gpu_memory_bytes_max=self._gpu_memory_bytes,
        )

    def _read_memory(self) -> None:
        self._memory_bytes = max(self._memory_bytes, _memory_bytes(self._engine.process_ids))
        self._gpu_memory_bytes = self._gpus.use().memory_bytes
        self._read_at = time.monotonic()


def _memory_bytes(process_ids: Sequence[int]) -> int:
    """Resident, of this process and of these; what they share is counted in each."""
    total = psutil.Process().memory_info().rss
    for process_id in process_ids:
        try:
            total += psutil.Process(process_id).memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return int(total)


def _measured(one: Completion, running: int, seconds: float) -> MeasuredRequest:
    if one.error_type is not None:
        return MeasuredRequest(error_type=one.error_type.value, running=running, finished_s=seconds)
    if one.times is None:
        raise EngineUnavailableError(
            "the engine does not tell when a request was begun and written",
            "Give the lead engine rates in [engine.options], or measure another engine.",
        )
    queue, prefill, ttft, decode, *_ = one.times.milliseconds()
    return MeasuredRequest(
        queue_ms=queue,
        prefill_ms=prefill,
        ttft_ms=ttft,
        decode_ms=decode,
        itl_ms=tuple(1e3 * gap for gap in one.times.token_gaps),
        num_output=len(one.token_ids),
        cached_tokens=one.cached_tokens,
        running=running,
        preemptions=one.times.num_preemptions,
        finished_s=seconds,
    )
