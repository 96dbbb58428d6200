"""A crash at some named points, and losses of power at some: `tests.proof.test_crashes` takes them all."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

POINTS, CUTS = 47, 149


@pytest.mark.timeout(900)
def test_some_crashes_and_losses_of_power(tmp_path: Path, tiny_llama: Path) -> None:
    """The output is the undisturbed one, every row once, and nothing that was committed is computed again."""
    print(crashes(tmp_path, tiny_llama, POINTS, CUTS))


def crashes(folder: Path, model: Path, points: int, cuts: int) -> str:
    """What was tried. Raises AssertionError with what did not hold."""
    command = [sys.executable, "-m", "tests.crashes", str(folder), str(model), str(points), str(cuts)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # and its children
    assert 0 == process.returncode, err
    assert int(out.split(" losses of power")[0].split()[-1]) >= 6
    assert int(out.split(" kills at named points")[0].split()[-1]) >= 6
    return out
