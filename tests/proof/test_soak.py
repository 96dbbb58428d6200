"""An hour of nights."""

from pathlib import Path
from statistics import median

import pytest

from tests.soak import soak

pytestmark = [pytest.mark.proof, pytest.mark.timeout(2 * 3600)]

SECONDS = 3600


def test_an_hour_of_nights(tmp_path: Path, tiny_llama: Path) -> None:
    """Memory, open files and segments of the last nights are those of the first, though the memo table grows."""
    found = soak(tmp_path, tiny_llama, SECONDS)
    print(f"\n{found.told()}")
    tenth = max(1, len(found.nights) // 10)
    early, late = found.nights[1 : tenth + 1], found.nights[-tenth:]
    for name, allowed in (("peak_bytes", 1.25), ("most_files", 1.25), ("num_segments", 3.0)):
        before, after = (median(getattr(night, name) for night in nights) for nights in (early, late))
        assert after <= before * allowed, f"{name}: {before} became {after}"
