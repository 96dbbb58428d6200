"""A stopwatch that one thread starts and stops, and others read."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Stopwatch:
    """Seconds so far. `started` and `stopped` give another, put in its place at once: a reader sees one of the two."""

    before: float = 0.0
    since: float | None = None  # by `clock`; None while it stands
    clock: Callable[[], float] = time.monotonic

    @property
    def seconds(self) -> float:
        return self.before + self.lap_seconds

    @property
    def lap_seconds(self) -> float:
        """Since it was last started; 0 while it stands."""
        return 0.0 if self.since is None else self.clock() - self.since

    def started(self, clock: Callable[[], float]) -> "Stopwatch":
        """Going on by `clock` from what there is."""
        return Stopwatch(before=self.seconds, since=clock(), clock=clock)

    def stopped(self) -> "Stopwatch":
        return replace(self, before=self.seconds, since=None)
