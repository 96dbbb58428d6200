"""A crash at some named points, and losses of power at some: `tests.proof.test_crashes` takes them all."""

import subprocess
import sys
from pathlib import Path

POINTS, CUTS = 29, 97


def test_some_crashes_and_losses_of_power(tmp_path: Path, tiny_llama: Path) -> None:
    """The output is the undisturbed one, every row once, and nothing that was committed is computed again."""
    print(crashes(tmp_path, tiny_llama, POINTS, CUTS))


def crashes(folder: Path, model: Path, points: int, cuts: int) -> str:
    """What was tried. Raises AssertionError with what did not hold."""
    command = [sys.executable, "-m", "tests.crashes", str(folder), str(model), str(points), str(cuts)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    assert " kills at named points" in done.stdout
    return done.stdout
