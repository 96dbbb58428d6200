"""A whole run on the transformers engine, with the two-layer model."""

from pathlib import Path

import msgspec
import pytest

from batchrun.diagnosis import examine
from batchrun.records import RunRecord
from batchrun.workspace import Workspace
from tests.commands import Bench, texts

pytestmark = pytest.mark.engine

ROWS = 40


@pytest.fixture
def corpus(bench: Bench) -> Path:
    spec = bench.home / "jobs" / "summarize.toml"
    engine = 'kind = "transformers"\ndtype = "float32"\nmax_num_seqs = 16'
    spec.write_text(spec.read_text().replace('kind = "lead"', engine))
    return bench.corpus(texts(ROWS))


def last_record(bench: Bench, job_id: str) -> RunRecord:
    path = max(bench.home.glob(f"checkpoints/{job_id}/seed-*/corpora/*/runs/*.json"))
    return msgspec.json.decode(path.read_bytes(), type=RunRecord)


def test_every_row_has_its_summary_whatever_the_batches(bench: Bench, corpus: Path) -> None:
    """Rows in are rows out, the padding is told, and one at a time the summaries are the same."""
    done = bench.submit(corpus)
    assert (0, ROWS) == (done.code, done.json["rows"]["ok"]), done.err
    rows = bench.output()
    assert {"ok"} == {row["status"] for row in rows}
    assert all(row["engine"].startswith("transformers ") for row in rows)
    assert 0.0 < last_record(bench, done.json["job_id"]).metrics.padding_share < 0.5
    spec = bench.home / "jobs" / "summarize.toml"
    spec.write_text(spec.read_text().replace("max_num_seqs = 16", "max_num_seqs = 1"))
    alone = bench.submit(corpus, "--seed", "1", "-o", bench.home / "alone.parquet")
    assert (0, done.json["job_id"]) == (alone.code, alone.json["job_id"])
    assert 0.0 == last_record(bench, done.json["job_id"]).metrics.padding_share
    assert [row["summary"] for row in rows] == [row["summary"] for row in bench.output("alone.parquet")]


def test_the_doctor_names_the_engine(bench: Bench, corpus: Path) -> None:
    """What would run, on what, and in which dtype."""
    checks = {
        check.name: check
        for check in examine(Workspace(home=bench.home), bench.home / "jobs" / "summarize.toml")
    }
    assert "transformers on cpu in float32" == checks["engine"].value
