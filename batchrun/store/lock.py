"""One run per job, seed and corpus: a lock that the kernel drops when its holder dies.

A POSIX record lock (`fcntl.lockf`): not inherited over fork, so an engine's process can not keep it
after the parent was killed. Its limit: a process loses it when it closes *any* descriptor of the
file, so inside the holding process the file is opened once, and a second attempt is refused here
before it opens the file.
"""

import fcntl
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock as ThreadLock
from typing import IO

import msgspec

from batchrun import atomic_file
from batchrun.clock import since
from batchrun.errors import LockedError, StorageError

_FLOCK = struct.Struct("hhqqi4x")
"""struct flock of 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid."""

UNKNOWN = "unknown"
"""What a holder is where its lock says nothing, as in the moment before it is written."""

TURN_SECONDS = 60.0

_held: dict[Path, "Holder"] = {}
_held_guard = ThreadLock()
_turns = ThreadLock()


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Who holds a lock, as it wrote of itself."""

    run_id: str
    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        if self.run_id == UNKNOWN:
            return "a run that has not said yet who it is"
        return f"run {self.run_id} (process {self.pid} on {self.host}), {since(self.since)}"


class RunLock:
    """Held from construction to `release`. Raises LockedError naming the holder where another has it.

    Whoever takes this lock while `barrier` is held gives it back and is refused, too. Who holds the barrier
    and then finds no such lock held is alone until it gives the barrier up.
    """

    def __init__(self, path: Path, run_id: str, *, barrier: Path | None = None) -> None:
        self.path = path.absolute()
        atomic_file.make_folder(path.parent)
        with _held_guard:
            if self.path in _held:
                raise _locked(self.path)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            me = Holder(run_id=run_id, pid=os.getpid(), host=socket.gethostname(), since=now)
            self._file = self._acquire(me)
            _held[self.path] = me
        if barrier is not None and (holder := holder_of(barrier)) is not None:
            self.release()
            raise LockedError(
                f"the files of this job are being collected by {holder}",
                f"Wait for `batchrun gc` to end; then call this again. (Lock: {barrier})",
            )

    def _acquire(self, holder: Holder) -> IO[bytes]:
        file = self.path.open("a+b")
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise _locked(self.path) from None
        except OSError as error:
            file.close()
            raise StorageError(
                f"{self.path} can not be locked: {error}",
                "Put the workspace on a file system with POSIX locks (a local disk, or NFS 4).",
            ) from error
        file.truncate(0)
        file.write(msgspec.json.encode(holder))
        file.flush()
        os.fsync(file.fileno())  # so that other machines of a network file system read who it is
        return file

    def release(self) -> None:
        """Give the lock up; may be called twice."""
        with _held_guard:
            self._file.close()
            _held.pop(self.path, None)


@contextmanager
def turn(path: Path) -> Iterator[None]:
    """Wait until nobody else has its turn at `path`, for a few reads and writes that no other run's may come between.

    Raises LockedError after TURN_SECONDS, which are a process that was stopped at its turn.
    """
    given_up = time.monotonic() + TURN_SECONDS
    with _turns, path.open("a+b") as file:
        while not _is_taken(file):
            if time.monotonic() >= given_up:
                raise LockedError(
                    f"another process has had its turn at {path} for {TURN_SECONDS:.0f} s",
                    f"Find it and end it, or let it go on (kill -CONT): fuser -v {path}",
                )
            time.sleep(0.05)
        yield


def _is_taken(file: IO[bytes]) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def holder_of(path: Path) -> Holder | None:
    """Who holds the lock now, or None. Takes nothing, and never disturbs a holder."""
    path = path.absolute()
    with _held_guard:
        if path in _held:  # the file must not be opened again inside the holding process
            return _held[path]
        return _read_holder(path) if path.exists() and _is_locked(path) else None


def _is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(file, fcntl.F_GETLK, query)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def _read_holder(path: Path) -> Holder:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Holder)
    except (OSError, msgspec.MsgspecError):
        return Holder(run_id=UNKNOWN, pid=0, host=socket.gethostname(), since=UNKNOWN)


def _locked(path: Path) -> LockedError:
    holder = _held.get(path) or _read_holder(path)
    where = "" if holder.host == socket.gethostname() else f" on {holder.host}"
    return LockedError(
        f"this corpus is being worked on by {holder}",
        f"Wait for it, or watch it: batchrun status. To end it: kill -TERM {holder.pid or 'its process'}{where}. "
        f"(Lock: {path})",
    )
