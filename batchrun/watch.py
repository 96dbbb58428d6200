"""Watching a worker from the main thread: progress, signals, the end of the window, an engine that dies or hangs."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from batchrun.errors import BatchrunError, EngineUnavailableError, InterruptedRunError
from batchrun.progress import Progress
from batchrun.reporter import Reporter
from batchrun.signals import StopSignals
from batchrun.telemetry.run_records import RunLog
from batchrun.telemetry.timeline import Timeline
from batchrun.watchdog import Watchdog
from batchrun.window import Window
from batchrun.worker.worker import Worker

TICK_SECONDS = 0.5
RECORD_SECONDS = 2.0
NAMED_DOCUMENTS = 5
"""Of those that an engine which hangs has not given back."""


@dataclass(kw_only=True)
class Watch:
    """`places_of` says where documents stand, by their keys. `is_closing`: the window ends, and nothing more is
    admitted.
    """

    worker: Worker
    progress: Progress
    log: RunLog
    timeline: Timeline
    reporter: Reporter
    signals: StopSignals
    window: Window
    watchdog: Watchdog
    load_seconds: float
    places_of: Callable[[Sequence[bytes]], list[str]]
    is_closing: bool = False
    _num_deaths: int = 0

    def until_end(self) -> None:
        """Return when there is no more to come. Raises InterruptedRunError where the engine hangs for good, and
        EngineUnavailableError where its first load does.
        """
        written = time.monotonic()
        try:
            while self.worker.is_running:
                self.worker.wait(TICK_SECONDS)
                if self.signals.received is not None:
                    self.worker.stop()
                self._mind_the_window()
                self._tell_deaths()
                self._mind_the_load()
                self._mind_the_engine()
                self.log.record = self.progress.of(self.log.record)
                self.timeline.add(self.progress.sample(self.log.record))
                self.reporter.running(self.log.record)
                if time.monotonic() - written >= RECORD_SECONDS:
                    written = time.monotonic()
                    self.log.write()
        except BaseException:
            self.worker.stop()
            raise
        self._tell_deaths()

    def _mind_the_window(self) -> None:
        """Admit no more when what runs would just end before publication must begin; then end it in any case."""
        left = self.window.seconds_to_work(self.log.record.rows.total)
        if left <= 0:
            self.worker.stop()
        if left <= self.worker.stay_seconds and not self.is_closing:
            self.is_closing = True
            self.worker.finish()
            self.reporter.note(
                f"the window ends {self.window.text}: what runs is finished, nothing more is begun"
            )

    def _tell_deaths(self) -> None:
        for death in self.worker.engine_deaths[self._num_deaths :]:
            self._warn(f"the engine died: {death}; it is started again, and what was in it is computed again")
            self._num_deaths += 1
            self.watchdog.restart()

    def _mind_the_load(self) -> None:
        """A load that hangs ends the run, and is not tried again: it took long, and the next submit tries it in a
        process of its own. What it has of processes is killed; what hangs in this one ends with it.
        """
        if self.worker.seconds_in_load <= self.load_seconds:
            return
        error = self.worker.give_up_load()
        again = " again" if self.worker.loaded_at else ""
        told = f"the engine was not loaded{again} after {self.load_seconds:,.0f} s (engine.load_seconds)"
        told = f"{told}; the last error that it told of: {error}" if error else told
        if again:
            raise InterruptedRunError(told, "What is finished is kept. Submit again to go on.")
        raise EngineUnavailableError(
            told,
            "Raise engine.load_seconds in the spec if loading takes so long here; else see: batchrun doctor",
        )

    def _mind_the_engine(self) -> None:
        """An engine that hangs is killed where it is a process of its own, and then started again like one that
        died; one in this process can not be, and ends the run.
        """
        if not self.worker.loaded_at or not self.watchdog.is_stalled(self.worker.snapshot()):
            return
        keys = self.worker.documents_in_engine
        told = (
            f"the engine made no token for {self.watchdog.limit:,.0f} s (engine.stall_seconds); it has "
            f"{len(keys):,} documents, among them {', '.join(self._places(keys[:NAMED_DOCUMENTS]))}"
        )
        self._warn(told)
        self.watchdog.restart()
        if not self.worker.kill_engine():
            raise InterruptedRunError(told, "What is finished is kept. Submit again to go on.")

    def _places(self, keys: Sequence[bytes]) -> list[str]:
        try:
            return self.places_of(keys)
        except BatchrunError:  # the plan is damaged: that is for whoever needs it
            return [key.hex() for key in keys]

    def _warn(self, told: str) -> None:
        self.reporter.note(told)
        self.log.update(warnings=[*self.log.record.warnings, told])
