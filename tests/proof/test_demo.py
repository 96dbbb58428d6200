"""`make demo`, as a person types it."""

import shutil
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.proof

ROOT = Path(__file__).parent.parent.parent


def test_make_demo() -> None:
    """It summarizes about thirty real documents with real vLLM, and shows where they are and three of them."""
    shutil.rmtree(ROOT / ".cache" / "demo", ignore_errors=True)
    for folder in ROOT.glob("checkpoints/demo-*"):
        shutil.rmtree(folder)
    done = subprocess.run(["make", "demo"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    rows = pq.read_table(ROOT / ".cache" / "demo" / "summaries.parquet").to_pylist()
    assert 30 == len(rows)
    assert {"ok": 29, "skipped": 1} == {
        status: sum(row["status"] == status for row in rows) for status in ("ok", "skipped")
    }
    assert "29 summaries of 30 rows are in" in done.stdout
    assert 3 == done.stdout.count(" tokens read)\n")
