"""A crash at every named point, and a loss of power at every third operation."""

from pathlib import Path

import pytest

from tests.test_crashes import crashes

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3 * 3600)]


def test_crashes_and_losses_of_power(tmp_path: Path, tiny_llama: Path) -> None:
    """The printed matrix: how often the process was killed before and after each operation on each kind of file."""
    print("\n" + crashes(tmp_path, tiny_llama, points=1, cuts=3))
