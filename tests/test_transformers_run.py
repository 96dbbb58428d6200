"""A whole run on the transformers engine, with the two-layer model."""

import re
from pathlib import Path

import msgspec
import pytest

from batchrun.diagnosis import examine
from batchrun.run_record import RunRecord
from batchrun.workspace import Workspace
from tests.commands import Bench

pytestmark = pytest.mark.engine

ROWS = 40


@pytest.fixture
def corpus(bench: Bench) -> Path:
    """No two of its texts have one length."""
    spec = bench.home / "jobs" / "summarize.toml"
    engine = 'kind = "transformers"\ndtype = "float32"\nmax_num_seqs = 16'
    text = spec.read_text().replace('kind = "lead"', engine)
    spec.write_text(re.sub("max_num_batched_tokens = .*", "max_num_batched_tokens = 1024", text))
    return bench.corpus([f"Document {row} of{' many' * (row + 1)} words." for row in range(ROWS)])


def last_record(bench: Bench, job_id: str) -> RunRecord:
    path = max(bench.home.glob(f"checkpoints/{job_id}/seed-*/corpora/*/runs/*.json"))
    return msgspec.json.decode(path.read_bytes(), type=RunRecord)


def test_every_row_has_its_summary_whatever_the_batches(bench: Bench, corpus: Path) -> None:
    """Rows in are rows out, the padding is told, and one at a time the summaries are the same. The model's
    weights are drawn: of some documents it makes nothing, and always of the same ones.
    """
    done = bench.submit(corpus, "--max-error-rate", "1")
    assert (0, ROWS) == (done.code, done.json["rows"]["computed"]), done.err
    rows = bench.output()
    assert ROWS / 2 < sum(row["status"] == "ok" for row in rows)
    assert {"empty_output", None} >= {row["error_type"] for row in rows}
    assert all(row["engine"].startswith("transformers ") for row in rows if row["status"] == "ok")
    assert 0.0 < last_record(bench, done.json["job_id"]).metrics.padding_share < 0.5
    spec = bench.home / "jobs" / "summarize.toml"
    spec.write_text(spec.read_text().replace("max_num_seqs = 16", "max_num_seqs = 1"))
    output = bench.home / "alone.parquet"
    alone = bench.submit(corpus, "--seed", "1", "--max-error-rate", "1", "-o", output)
    assert (0, done.json["job_id"]) == (alone.code, alone.json["job_id"])
    assert 0.0 == last_record(bench, done.json["job_id"]).metrics.padding_share
    assert [row["summary"] for row in rows] == [row["summary"] for row in bench.output("alone.parquet")]


def test_the_doctor_names_the_engine(bench: Bench, corpus: Path) -> None:
    """What would run, on what, and in which dtype."""
    checks = {
        check.name: check
        for check in examine(Workspace(home=bench.home), bench.home / "jobs" / "summarize.toml").checks
    }
    assert "transformers on cpu in float32" == checks["engine"].value
