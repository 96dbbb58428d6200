"""The engine of a run, and the next one when it dies: as long as that is worth it, with fewer sequences where it ran
out of memory.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from threading import Event

from batchrun.engines.base import Engine, EngineDeadError, EngineLimits, EngineSnapshot
from batchrun.errors import EngineUnavailableError
from batchrun.worker.stopwatch import Stopwatch

MAX_FRUITLESS = 7
"""Deaths one after the other, with no request ended between them, after which the run is given up: two requests that
kill an engine, one after the other, are found by six.
"""
LIVES = 12
"""A run is given up where its last so many engines took longer to load than they ran, though each of them ended
requests: the night would be spent loading. It is a share of the time and no number of deaths, because that is what
is lost: an engine of a minute's loading may die every hour for a week. Four requests that kill an engine are found
by twelve deaths, in a row and at once.
"""

PAUSE_SECONDS = 10.0
StartEngine = Callable[[float], Engine]
"""Starts an engine with a share of the sequences of the spec."""


class EngineKeeper:
    """For the engine's thread; `snapshot`, `deaths`, `loading`, `attempt` and `running` may be read from any.

    `loading`: while there is no engine, from the first start on, with the pauses between starts; `attempt`: while one
    is being started; `running`: while there is one, by its own clock where it has one.
    """

    def __init__(self, start: StartEngine, clock: Callable[[], float] = time.monotonic) -> None:
        self._start = start
        self._clock = clock
        self._share = 1.0
        self._num_fruitless = 0
        self._before = EngineSnapshot()  # the counts of engines that died
        self._spent = deque([(0.0, 0.0)], maxlen=LIVES + 1)  # loading and running, at the last deaths
        self.loading, self.attempt, self.running = Stopwatch(), Stopwatch(), Stopwatch()
        self.engine: Engine | None = None
        self.label: str | None = None  # of the last engine that was there
        self.limits: EngineLimits | None = None  # its own
        self.deaths: list[str] = []  # what was said of each

    def start(self) -> Engine:
        """Raises EngineUnavailableError where it does not start."""
        if self.loading.since is None:
            self.loading = self.loading.started(self._clock)
        self.attempt = self.attempt.started(self._clock)
        try:
            engine = self._start(self._share)
        finally:
            self.attempt = self.attempt.stopped()
        self.engine, self.label, self.limits = engine, engine.label, engine.limits
        self.loading = self.loading.stopped()
        self.running = self.running.started(getattr(engine, "clock", self._clock))
        return engine

    def restart(self, stop: Event) -> Engine | None:
        """Another engine after one that died; None after `stop`. One that does not start is tried again after
        PAUSE_SECONDS, as often as deaths are: the memory of one that was killed is not free at once. Raises
        EngineDeadError where it is given up.
        """
        while not stop.is_set():
            try:
                return self.start()
            except EngineUnavailableError as error:
                self._num_fruitless += 1
                if self._num_fruitless >= MAX_FRUITLESS:
                    raise EngineDeadError(f"it does not start again: {error.reason}") from error
            stop.wait(PAUSE_SECONDS)
        return None

    def bury(self, death: EngineDeadError, *, was_fruitful: bool) -> None:
        """End what is left of an engine that died; raise EngineDeadError where another start is not worth it.

        `was_fruitful`: whether a request came to its end since it was started.
        """
        self.running, self.loading = self.running.stopped(), self.loading.started(self._clock)
        self._num_fruitless = 0 if was_fruitful else self._num_fruitless + 1
        if self._num_fruitless >= MAX_FRUITLESS:
            raise death
        self._weigh(death)
        if (engine := self.engine) is not None:
            engine.close()
            self._before, self.engine = _sum(self._before, engine.snapshot()), None
        if death.is_out_of_memory:
            self._share /= 2
        self.deaths.append(str(death))

    def _weigh(self, death: EngineDeadError) -> None:
        self._spent.append((self.loading.seconds, self.running.seconds))
        (loading_before, running_before), (loading, running) = self._spent[0], self._spent[-1]
        loading, running = loading - loading_before, running - running_before
        if len(self._spent) > LIVES and loading > running:
            raise EngineDeadError(
                f"{death}; the last {LIVES} engines all died, and took {loading:,.0f} s to load for {running:,.0f} s "
                "in which they ran"
            ) from death

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()

    def snapshot(self) -> EngineSnapshot:
        """Of the engine now, its counts with those of the engines before it."""
        engine, before = self.engine, self._before
        return replace(before, running=0, waiting=0) if engine is None else _sum(before, engine.snapshot())


COUNTS = (
    "num_preemptions",
    "computed_tokens",
    "cached_tokens",
    "output_tokens",
    "num_steps",
    "padded_tokens",
)


def _sum(before: EngineSnapshot, now: EngineSnapshot) -> EngineSnapshot:
    return replace(now, **{name: getattr(before, name) + getattr(now, name) for name in COUNTS})
