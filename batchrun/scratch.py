"""Folders for what outlives nothing: they end with their process, or are removed when it is found dead."""

import os
import socket
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

import psutil


def scratch_folder(base: Path, purpose: str) -> "TemporaryDirectory[str]":
    """A folder below `base`, named for its purpose, host and process. Raises OSError."""
    base.mkdir(parents=True, exist_ok=True)
    return TemporaryDirectory(prefix=f"{purpose}+{socket.gethostname()}+{os.getpid()}+", dir=base)


def remove_dead(base: Path) -> None:
    """Remove the folders that killed processes of this host left."""
    for path in base.glob("*+*+*+*"):
        _, host, pid, _ = path.name.split("+", 3)
        if host == socket.gethostname() and not psutil.pid_exists(int(pid)):
            rmtree(path, ignore_errors=True)
