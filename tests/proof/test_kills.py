"""The lead engine at a throttled rate, killed at 25 random instants."""

import pytest

from tests.commands import Bench
from tests.kills import kill_and_resume

pytestmark = pytest.mark.proof


def test_25_kills_over_2000_rows(bench: Bench) -> None:
    """The output equals that of an undisturbed run; nothing that was committed is computed again."""
    kill_and_resume(bench, rows=2000, kills=25, seconds=40.0)
