"""The engine of a run, and the next one when it dies: a bounded number of times, with fewer sequences where it ran
out of memory.
"""

from collections.abc import Callable
from dataclasses import replace

from batchrun.engines.base import Engine, EngineDeadError, EngineSnapshot

MAX_FRUITLESS = 7
"""Deaths one after the other, with no request ended between them, after which the run is given up: two requests that
kill an engine, one after the other, are found by six.
"""

StartEngine = Callable[[float], Engine]
"""Starts an engine with a share of the sequences of the spec."""


class EngineKeeper:
    """For the engine's thread; `snapshot` and `deaths` may be read from any."""

    def __init__(self, start: StartEngine) -> None:
        self._start = start
        self._share = 1.0
        self._num_fruitless = 0
        self._before = EngineSnapshot()  # the counts of engines that died
        self.engine: Engine | None = None
        self.deaths: list[str] = []  # what was said of each

    def start(self) -> Engine:
        """Raises EngineUnavailableError where it does not start."""
        self.engine = self._start(self._share)
        return self.engine

    def bury(self, death: EngineDeadError, *, was_fruitful: bool) -> None:
        """End what is left of an engine that died; raise its death again where another start is not worth it.

        `was_fruitful`: whether a request came to its end since it was started.
        """
        self._num_fruitless = 0 if was_fruitful else self._num_fruitless + 1
        if self._num_fruitless >= MAX_FRUITLESS:
            raise death
        if self.engine is not None:
            self._before = _sum(self._before, self.engine.snapshot())
            self.engine.close()
        if death.is_out_of_memory:
            self._share /= 2
        self.deaths.append(str(death))

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()

    def snapshot(self) -> EngineSnapshot:
        """Of the engine now, its counts with those of the engines before it."""
        return self._before if self.engine is None else _sum(self._before, self.engine.snapshot())


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
