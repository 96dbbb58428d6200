"""What binds an engine's own process to the batchrun that started it. It runs in the engine's processes.

vLLM loads `die_with_parent` as a plugin in the process of its core and in each worker below it. It does
nothing unless `PARENT_PID` is in the environment, which the engine sets while it starts a core and only then.
"""

import contextlib
import ctypes
import json
import logging
import multiprocessing
import os
import signal
import sys

PARENT_PID = "BATCHRUN_PARENT_PID"
ERRORS_FILE = "BATCHRUN_ENGINE_ERRORS"
RUN_ID, RUN_LOCK = "BATCHRUN_RUN_ID", "BATCHRUN_RUN_LOCK"
"""The run that an engine is started for, and its lock: by them its processes are known (`processes.py`)."""
PR_SET_PDEATHSIG = 1  # prctl(2)


def die_with_parent() -> None:
    """Tie this process to its parent: no engine is left behind, whatever ends batchrun.

    On Linux the kernel kills this process when the thread that started it ends, by SIGKILL too: an engine
    must be started on a thread that lives until it is closed. A worker's parent is the core, so a death goes
    down the tree. Where the parent died before the call, this process ends at once; between its start and
    the call, while it imports vLLM, it can outlive its parent by some seconds. Elsewhere than on Linux
    only vLLM's own pipes tell a worker of its parent's end.

    Also: standard output becomes standard error, because standard output is for batchrun's data; the core
    leaves the process group, so that signals to the group reach batchrun, which ends the engine in
    order; and the errors that vLLM logs are written to the file that `ERRORS_FILE` names.
    """
    starter, parent = os.environ.get(PARENT_PID), multiprocessing.parent_process()
    if starter is None or parent is None or starter == str(os.getpid()):
        return
    _ask_for_death_signal()
    if parent.pid != os.getppid():
        os.kill(os.getpid(), signal.SIGKILL)
    os.dup2(2, 1)
    if starter == str(parent.pid):
        os.setpgid(0, 0)
    if path := os.environ.get(ERRORS_FILE):
        logging.getLogger("vllm").addHandler(ErrorsFile(path))


def _ask_for_death_signal() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class ErrorsFile(logging.Handler):
    """Appends a line of JSON for each error: `said`, the exception if it has one, else the message; and its `type`.

    It does not make the file: after the file's end, errors go where vLLM's other messages go.
    """

    def __init__(self, path: str) -> None:
        super().__init__(level=logging.ERROR)
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line in one write, so that the lines of several processes do not mix."""
        error = record.exc_info[1] if record.exc_info else None
        said = record.getMessage() if error is None else error
        kind = "" if error is None else type(error).__name__
        line = json.dumps({"type": kind, "said": " ".join(str(said).split())}) + "\n"
        with contextlib.suppress(FileNotFoundError):
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(file, line.encode())
            finally:
                os.close(file)
