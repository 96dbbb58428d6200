"""SIGINT and SIGTERM as a stop in good order."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Self

from batchrun.errors import ExitCode


class StopRequestedError(Exception):
    """A signal asked the run to stop. Caught by the runner alone."""


class StopSignals:
    """While entered, a signal raises StopRequestedError on the main thread, or, between `defer` and the
    end, only sets `received`. Outside the main thread it does nothing: there signals are the caller's.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._deferred = False
        self._before: dict[signal.Signals, object] = {}

    def defer(self) -> None:
        self._deferred = True

    def undefer(self) -> None:
        """Raise again; at once where a signal has come."""
        self._deferred = False
        self.check()

    def check(self) -> None:
        if self.received is not None:
            raise StopRequestedError

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.KEYBOARD if self.received is signal.SIGINT else ExitCode.INTERRUPTED

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, _: FrameType | None) -> None:
        first = self.received is None
        self.received = signal.Signals(number)
        if first and not self._deferred:
            raise StopRequestedError
