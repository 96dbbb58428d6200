"""Requests through an engine as batchrun feeds it: the driver's loop and the feeder, without corpus and store."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event, Timer

from batchrun.engines.base import Engine
from batchrun.records import Completion, FinishReason, Request
from batchrun.worker.driver import Driver
from batchrun.worker.feeder import Feeder, FeedingSettings
from batchrun.worker.residency import Residency, Slice

WINDOW = 64
"""Requests offered at a time, as the worker's batches are."""


@dataclass(frozen=True, kw_only=True)
class Fed:
    """What came of it in `seconds`. Tokens are the engine's, those of what did not end among them; `completions`
    are of outputs that ended.
    """

    seconds: float
    completions: list[Completion]
    computed_tokens: int
    output_tokens: int
    padded_tokens: int
    cached_tokens: int
    idle_seconds: float
    is_complete: bool

    @property
    def tokens_per_second(self) -> float:
        """Prompt tokens computed and output tokens; padding is not counted."""
        return (self.computed_tokens + self.output_tokens) / self.seconds

    @property
    def num_repeated(self) -> int:
        """Outputs that were ended because they repeated themselves."""
        return sum(one.finish_reason is FinishReason.REPETITION for one in self.completions)

    @property
    def padding_share(self) -> float:
        return self.padded_tokens / max(1, self.padded_tokens + self.computed_tokens)


def feed(
    engine: Engine, requests: Sequence[Request], *, seconds: float, residency: Residency | None = None
) -> Fed:
    """Run requests to their end, or for `seconds`; what then is in the engine is given up. Raises EngineDeadError."""
    queue = _Queue(requests)
    stop = Event()
    settings = FeedingSettings(residency=residency or Residency())
    feeder = Feeder(engine.limits, settings, lambda _, number: number)
    driver = Driver(engine, feeder, queue.more, queue.take, stop)
    before, started = engine.snapshot(), time.monotonic()
    timer = Timer(seconds, stop.set)
    timer.daemon = True
    timer.start()
    driver.run(lambda: queue.has_more)
    timer.cancel()
    took, after = time.monotonic() - started, engine.snapshot()
    engine.abort([request.request_id for request in requests])
    return Fed(
        seconds=took,
        completions=queue.ended,
        computed_tokens=after.computed_tokens - before.computed_tokens,
        output_tokens=after.output_tokens - before.output_tokens,
        padded_tokens=after.padded_tokens - before.padded_tokens,
        cached_tokens=after.cached_tokens - before.cached_tokens,
        idle_seconds=driver.tally.idle_seconds,
        is_complete=queue.is_empty,
    )


class _Queue:
    """Requests on their way to the engine, and outputs that ended."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = requests
        self._offered = 0
        self.ended: list[Completion] = []

    @property
    def has_more(self) -> bool:
        return self._offered < len(self._requests)

    @property
    def is_empty(self) -> bool:
        return len(self.ended) == len(self._requests)

    def more(self, _: bool) -> Sequence[Request] | None:
        """None where every output has ended: the driver's loop ends with it."""
        if self.is_empty:
            return None
        start = self._offered
        self._offered = min(start + WINDOW, len(self._requests))
        return self._requests[start : self._offered]

    def take(self, slices: list[Slice]) -> None:
        self.ended += [one.output for one in slices if one.is_last]
