"""A load: requests given to an engine so that a fixed number of them is in it, and what was seen of them."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import psutil

from batchrun.engines.base import Engine, EngineConfig, EngineDeadError, clock_of
from batchrun.errors import EngineUnavailableError
from batchrun.insight.bench_cells import CellFigures, MeasuredRequest
from batchrun.records import Completion, Request
from batchrun.telemetry.gpus import Gpus
from batchrun.telemetry.requests import milliseconds

MEMORY_SECONDS = 0.5
"""Between two looks at the memory of the processes."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Requests in the order in which they ended; `is_whole`: all of them did. `errors`: what the engine said of those
    that failed, `death`: its last words, if it died.
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

    def run(self, requests: Sequence[Request], concurrency: int) -> Measured:
        """Run requests, the next one given when one has ended. What is in the engine when the time is over is
        aborted and not told. Raises EngineUnavailableError where the engine tells no times.
        """
        watch = _Watch(self._engine, self._config)
        waiting, in_flight = deque(requests), set[str]()
        measured: list[MeasuredRequest] = []
        errors: list[str] = []
        death = None
        started = self._clock()
        try:
            while (waiting or in_flight) and not self._is_over():
                while waiting and len(in_flight) < concurrency:
                    self._engine.add(waiting[0])
                    in_flight.add(waiting.popleft().request_id)
                completions = self._engine.step()
                running = watch.look(len(completions))
                for one in completions:
                    in_flight.remove(one.request_id)
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
            is_whole=not waiting and not in_flight,
            death=death,
        )


class _Watch:
    """What an engine and its processes show while a cell is measured."""

    def __init__(self, engine: Engine, config: EngineConfig) -> None:
        self._engine = engine
        self._before = engine.snapshot()
        self._gpus = Gpus(config)
        self._most = CellFigures()
        self._read_at = 0.0

    def look(self, num_ended: int) -> int:
        """After a step that ended so many requests; how many sequences were in it."""
        now, most = self._engine.snapshot(), self._most
        running = now.running + num_ended
        self._most = replace(
            most,
            kv_cache_usage_max=max(most.kv_cache_usage_max, now.kv_cache_usage),
            running_max=max(most.running_max, running),
            waiting_max=max(most.waiting_max, now.waiting),
        )
        if time.monotonic() - self._read_at >= MEMORY_SECONDS:
            self._read_memory()
        return running

    def figures(self, seconds: float) -> CellFigures:
        self._read_memory()
        before, now = self._before, self._engine.snapshot()
        return replace(
            self._most,
            seconds=seconds,
            read_tokens=now.computed_tokens - before.computed_tokens,
            written_tokens=now.output_tokens - before.output_tokens,
            preemptions=now.num_preemptions - before.num_preemptions,
        )

    def _read_memory(self) -> None:
        self._most = replace(
            self._most,
            memory_bytes_max=max(self._most.memory_bytes_max, _memory_bytes(self._engine.process_ids)),
            gpu_memory_bytes_max=self._gpus.use().memory_bytes,
        )
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
    queue, prefill, ttft, decode, *_ = milliseconds(one.times)
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
