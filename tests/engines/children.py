"""The processes that tests start, and what runs in them: functions that `multiprocessing` can import there."""

import logging
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from batchrun.engines.parent import die_with_parent

PATIENCE_SECONDS = 20.0


def start_child(target: Callable[[Path], None], mark: Path) -> multiprocessing.process.BaseProcess:
    child = multiprocessing.get_context("spawn").Process(target=target, args=(mark,))
    child.start()
    return child


def wait_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def is_alive(process_id: int) -> bool:
    try:
        return bool(psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def live(mark: Path) -> None:
    """Bind to the parent, leave a mark, and go on for a minute."""
    die_with_parent()
    mark.write_text(str(os.getpgid(0)))
    time.sleep(60)


def speak(_: Path) -> None:
    """Bind to the parent, write to standard output, and log errors as vLLM does."""
    die_with_parent()
    os.write(1, b"not data\n")
    logger = logging.getLogger("vllm.core")
    logger.warning("a warning")
    try:
        raise ValueError("out of\nmemory")
    except ValueError:
        logger.exception("could not start")
    logger.error("then this")


def bind_late(mark: Path) -> None:
    """Wait for the parent's end, and only then bind to it; the second mark says that this process lives on."""
    parent = os.getppid()
    mark.write_text(str(os.getpid()))
    while os.getppid() == parent:
        time.sleep(0.01)
    die_with_parent()
    mark.with_suffix(".alive").touch()
