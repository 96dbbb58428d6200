"""An hour of nights."""

from pathlib import Path
from statistics import median

import pytest

from batchrun.store.checkpoints import COMPACT_FROM
from tests.soak import soak

pytestmark = [pytest.mark.proof, pytest.mark.timeout(2 * 3600)]

SECONDS = 3600
MOST_FILES = 64
"""Segments that are read, each twice, and the sizes of file that DuckDB spills to: 30 were seen with a million rows."""


def test_an_hour_of_nights(tmp_path: Path, tiny_llama: Path) -> None:
    """Memory, open files and segments are bounded, though the memo table grows to more than memory may hold of it."""
    found = soak(tmp_path, tiny_llama, SECONDS)
    print(f"\n{found.told()}")
    tenth = max(1, len(found.nights) // 10)
    early, late = found.nights[1 : tenth + 1], found.nights[-tenth:]
    before, after = (median(night.peak_bytes for night in nights) for nights in (early, late))
    assert after <= 1.4 * before, f"{before} bytes became {after}"
    assert max(night.most_files for night in found.nights) < MOST_FILES
    assert max(night.num_segments for night in found.nights) < 2 * COMPACT_FROM
