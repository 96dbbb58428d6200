"""The lead engine at a throttled rate, killed at random instants."""

import pytest

from tests.commands import Bench
from tests.kills import kill_and_resume

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3 * 3600)]


def test_200_kills_over_8000_rows(bench: Bench) -> None:
    """The output equals that of an undisturbed run; nothing that was committed is computed again."""
    kill_and_resume(bench, rows=8000, kills=200, seconds=200.0)
