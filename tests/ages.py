"""Days that pass in a moment."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from batchrun import collection


@contextmanager
def days_later(days: float) -> Iterator[None]:
    """The collection believes that time has passed."""
    with pytest.MonkeyPatch.context() as patch:
        now = datetime.now(UTC) + timedelta(days=days)
        patch.setattr(collection, "_now", lambda: now)
        yield


@contextmanager
def days_ago(days: float) -> Iterator[None]:
    """What is written inside is as old."""
    with pytest.MonkeyPatch.context() as patch:
        moment = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="milliseconds")
        for module in ("runner", "preparation", "telemetry.run_records"):
            patch.setattr(f"batchrun.{module}.timestamp", lambda: moment)
        yield
