"""Signals as a stop in good order: SIGINT, SIGTERM, SIGUSR1 as Slurm sends it before the time is over, SIGHUP of a
terminal that is closed.
"""

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Self

from batchrun.errors import ExitCode

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


ENDS_WITH_PARENT = "BATCHRUN_ENDS_WITH_PARENT"
"""In the environment, the process that starts a run: when it has ended, the run ends as after SIGTERM."""
PR_SET_PDEATHSIG = 1  # prctl(2)


def end_with_parent() -> None:
    """Where ENDS_WITH_PARENT is set, and on Linux. A parent that had ended before is noticed as well."""
    starter = os.environ.pop(ENDS_WITH_PARENT, "")
    if starter and sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if str(os.getppid()) != starter:
            os.kill(os.getpid(), signal.SIGTERM)


def answered() -> list[signal.Signals]:
    """STOPPING, but for a SIGHUP that is ignored: under nohup it is, and stays so."""
    is_under_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in STOPPING if not (is_under_nohup and number is signal.SIGHUP)]


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
            for number in answered():
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.received is not None:
            return
        self.received = signal.Signals(number)
        if not self._deferred:
            raise StopRequestedError
