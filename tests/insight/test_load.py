"""A load out of request telemetry, and windows out of totals."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrun.insight.load import load_of_requests
from batchrun.insight.windows import token_windows
from batchrun.spec import JobSpec
from batchrun.telemetry.requests import SCHEMA


def request(key: int, **values: Any) -> dict[str, Any]:
    return {
        "key": key.to_bytes(16, "big"),
        "document_key": None,
        "stage": "document",
        "attempt": 1,
        "slice": 0,
        "bucket": "0–1K",
        "input_tokens": 100,
        "output_tokens": 10,
        "cached_tokens": 0,
        "finish_reason": "stop",
        "running": 1,
        "finished_at": 0.0,
    } | values


def written(folder: Path, *requests: dict[str, Any]) -> list[Path]:
    path = folder / "run.parquet"
    pq.write_table(pa.Table.from_pylist(list(requests), schema=SCHEMA), path)
    return [path]


def test_retries_and_slices_are_told_from_first_attempts(tmp_path: Path) -> None:
    """Each request is of one kind, and a document is read once in the load however often its calls came."""
    document = (99).to_bytes(16, "big")
    files = written(
        tmp_path,
        request(1),
        request(2, finish_reason="length", output_tokens=64),
        request(2, slice=1, input_tokens=164, cached_tokens=96, output_tokens=6),
        request(3, finish_reason="abort", output_tokens=3),
        request(4, finish_reason="error", error_type="engine_error", output_tokens=0),
        request(4, attempt=2),
        request(5, document_key=document, stage="part", input_tokens=900),
        request(6, document_key=document, stage="part", input_tokens=900),
    )
    load, attempts = load_of_requests(files, tmp_path, JobSpec(model="m"), 1000)
    assert [("first", 5), ("slice", 1), ("retry", 1), ("aborted", 1)] == [
        (one.kind, one.requests) for one in attempts
    ]
    assert 68 == next(one for one in attempts if one.kind == "slice").read_tokens
    assert [(96, 3, 300), (1792, 1, 1800)] == [
        (one.shortest, one.documents, one.tokens) for one in load.classes
    ]
    assert ((10, 4), (70, 1)) == load.outputs
    assert 4 * load.output_tokens == 110
    assert ["1K–8K"] == [
        label
        for label, number in load.outline(JobSpec(model="m"), 5000).documents_by_bucket.items()
        if number == 1
    ]
    assert 1 == load.outline(JobSpec(model="m"), 1000).documents_by_bucket["long"]


def test_windows_are_of_five_minutes() -> None:
    """What is read and written between two samples comes evenly, and peaks need not come together."""
    totals = [(0.0, 0.0, 0.0), (450.0, 900.0, 0.0), (700.0, 900.0, 500.0)]
    found = token_windows(totals)
    assert [(0, 300, 600, 0), (300, 300, 300, 300), (600, 100, 0, 200)] == [
        (one.start_seconds, one.seconds, one.prefill_tokens, one.decode_tokens) for one in found
    ]
    assert [] == token_windows([])


@pytest.mark.parametrize("days", [1, 8])
def test_there_are_no_more_windows_than_fit_a_page(days: int) -> None:
    """A run of more than a week is counted in wider ones, and loses no token."""
    found = token_windows([(0.0, 0.0, 0.0), (86400.0 * days, 1e6, 2e6)])
    assert len(found) <= 2016
    assert 1_000_000 == pytest.approx(sum(one.prefill_tokens for one in found), abs=len(found))
