"""The thread that makes memo rows durable, at most COMMIT_SECONDS after they were finished."""

import time
from collections.abc import Callable, Sequence
from threading import Condition, Thread

from batchrun.records import Summary

COMMIT_SECONDS = 1.0
MAX_WAITING_ROWS = 50_000
"""Rows that may wait for the disk before those who finish more of them are made to wait, too."""


class Committer:
    """Rows given to `add` reach `commit` in order. An error of `commit` is raised by `add` and `close`."""

    def __init__(self, commit: Callable[[Sequence[Summary]], None]) -> None:
        self._commit = commit
        self._rows: list[Summary] = []
        self._changed = Condition()
        self._closing = False
        self._error: BaseException | None = None
        self.wait_seconds = 0.0
        self.cpu_seconds: dict[str, float] = {}  # once its thread has ended
        self._thread = Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    def add(self, rows: Sequence[Summary]) -> None:
        with self._changed:
            self._raise_error()
            self._rows.extend(rows)
            started = time.monotonic()
            while len(self._rows) > MAX_WAITING_ROWS and self._error is None:
                self._changed.notify_all()
                self._changed.wait()
            self.wait_seconds += time.monotonic() - started
            self._raise_error()

    def close(self) -> None:
        """Commit what is left and end the thread; everything added is durable when this returns."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        self._commit_all()
        self.cpu_seconds = {"committer": time.thread_time()}

    def _commit_all(self) -> None:
        closing = False
        while not closing:
            with self._changed:
                deadline = time.monotonic() + COMMIT_SECONDS
                while (
                    not self._closing and len(self._rows) <= MAX_WAITING_ROWS and time.monotonic() < deadline
                ):
                    self._changed.wait(deadline - time.monotonic())
                rows, self._rows = self._rows, []
                closing = self._closing
                self._changed.notify_all()
            try:
                if rows:
                    self._commit(rows)
            except BaseException as error:  # noqa: BLE001 - carried to the thread that adds
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return
