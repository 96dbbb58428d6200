"""The watchdog: whether an engine that has work makes no token any more."""

import time
from collections.abc import Callable

from batchrun.engines.base import EngineSnapshot

STEPS = 10
"""A step may take so many times as long as the longest so far, before it counts as a stall."""


class Watchdog:
    """Looked at now and then, on one thread. Progress is any change of the engine's counts."""

    def __init__(self, stall_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._stall_seconds = stall_seconds
        self._clock = clock
        self._seen: tuple[int, ...] | None = None
        self._moved_at = clock()
        self._longest = 0.0

    @property
    def limit(self) -> float:
        """Seconds without progress from which it is a stall."""
        return max(self._stall_seconds, STEPS * self._longest)

    def is_stalled(self, snapshot: EngineSnapshot) -> bool:
        """Whether nothing moved for longer than `limit`, though there is work in the engine."""
        now, counts = self._clock(), _counts(snapshot)
        if counts != self._seen or not snapshot.running + snapshot.waiting:
            if self._seen is not None and snapshot.running:
                self._longest = max(self._longest, now - self._moved_at)
            self._seen, self._moved_at = counts, now
        return now - self._moved_at > self.limit

    def restart(self) -> None:
        """Another engine begins."""
        self._seen, self._moved_at = None, self._clock()


def _counts(snapshot: EngineSnapshot) -> tuple[int, ...]:
    return (
        snapshot.num_steps,
        snapshot.computed_tokens,
        snapshot.cached_tokens,
        snapshot.output_tokens,
        snapshot.padded_tokens,
        snapshot.running + snapshot.waiting,
    )
