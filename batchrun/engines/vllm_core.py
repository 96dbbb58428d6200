"""The process of a vLLM core with its workers: watched while it lives, ended in bounded time."""

import contextlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import InvalidStateError
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import psutil

from batchrun.engines.base import EngineDeadError
from batchrun.engines.processes import read_errors

END_SECONDS = 8.0
"""How long a core may take to end by itself; with workers on a CPU it takes 4.6 s (two cores)."""
POLL_SECONDS = 0.05


class Scratch:
    """A temporary folder of an engine's processes: their sockets, and their errors, one a line (see `parent`)."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="batchrun-", ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name)
        self.errors = self.folder / "errors"
        self.errors.touch()

    def first_error(self) -> str | None:
        """The first error since the last `forget_errors`: the later ones are its consequences."""
        return next((error["said"] for error in read_errors(self.errors) if error["said"]), None)

    @property
    def tells_of_want_of_memory(self) -> bool:
        """Whether one of the errors was a want of memory, of the GPU or the machine."""
        return any(error["type"] in ("OutOfMemoryError", "MemoryError") for error in read_errors(self.errors))

    def forget_errors(self) -> None:
        """Drop what was said so far."""
        os.truncate(self.errors, 0)

    def close(self) -> None:
        """Remove the folder; idempotent."""
        self._folder.cleanup()


class CoreProcess:
    """A core that runs below an LLMEngine.

    vLLM's client waits for outputs without a timeout, and its own monitor does not end that wait when the
    core is killed. A thread here waits for the process and then ends it.
    """

    def __init__(self, llm: Any, scratch: Scratch) -> None:
        self._client = llm.engine_core
        self._scratch = scratch
        self._cores = list(self._client.resources.engine_manager.processes)
        self._processes = list(_trees(core.pid for core in self._cores))
        threading.Thread(target=self._watch, name="engine-watch", daemon=True).start()
        scratch.forget_errors()
        llm.get_supported_tasks()  # asks the core once; else the first `add` would wait for the answer

    @property
    def process_ids(self) -> list[int]:
        """The core and all below it, as they were after the start."""
        return [process.pid for process in self._processes]

    def wake(self) -> None:
        """Let whoever waits for the core go on, with an EngineDeadError."""
        self._client.outputs_queue.put(EngineDeadError("the engine's process has ended"))
        for answer in list(self._client.utility_results.values()):
            with contextlib.suppress(InvalidStateError):
                answer.set_exception(EngineDeadError("the engine's process has ended"))

    def last_words(self) -> str | None:
        """Why the core ended, as far as is known within a second: what it said, else how it was ended."""
        has_ended = wait([core.sentinel for core in self._cores], timeout=1.0)
        return self._scratch.first_error() or (self._how_it_ended() if has_ended else None)

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether its errors tell so."""
        return self._scratch.tells_of_want_of_memory

    def end(self) -> None:
        """Ask the core to end, and kill what is left of it after `END_SECONDS`."""
        self._client.shutdown(timeout=END_SECONDS)
        _kill(_wait_for_end(self._processes, seconds=1.0))
        _wait_for_end(self._processes, seconds=1.0)
        self._scratch.close()

    def _how_it_ended(self) -> str | None:
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            for core in self._cores:
                if core.exitcode is not None:  # it is None while another thread takes it from the kernel
                    return _describe(core.exitcode)
            time.sleep(POLL_SECONDS)
        return None

    def _watch(self) -> None:
        wait([core.sentinel for core in self._cores])
        self.wake()


def _describe(exit_code: int) -> str:
    if exit_code == -signal.SIGKILL:
        return "the engine's process was killed (SIGKILL), by someone or by the kernel for lack of memory"
    if exit_code < 0:
        return f"the engine's process was ended by {signal.Signals(-exit_code).name}"
    return f"the engine's process ended with exit status {exit_code}"


def _trees(process_ids: Iterable[int]) -> Iterable[psutil.Process]:
    for process_id in process_ids:
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(process_id)
            yield root
            yield from root.children(recursive=True)


def _wait_for_end(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    deadline = time.monotonic() + seconds
    while left := [process for process in processes if _is_alive(process)]:
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_SECONDS)
    return left


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
