"""The operator in a real Airflow 3, which has an environment of its own without batchrun's packages."""

import json
import os
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Bench, texts

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".cache" / "airflow"
BINARY = Path(sys.executable).parent / "batchrun"
DAG = """
import sys; sys.path.insert(0, {root!r})
import pendulum
from airflow.sdk import DAG
from batchrun.integrations.airflow import BatchrunOperator

with DAG("summaries", start_date=pendulum.datetime(2026, 11, 1), schedule=None):
    BatchrunOperator(
        task_id="summarize", batchrun_bin={binary!r}, corpus={corpus!r}, home={home!r},
        retries=2, retry_delay=pendulum.duration(seconds=1),
    )
"""
STOPPED_ONCE = """#!/bin/sh
# the first try is stopped after six seconds
if [ ! -e {mark} ]; then touch {mark}; exec timeout --preserve-status --signal=TERM 6 {binary} "$@"; fi
exec {binary} "$@"
"""


@pytest.fixture(scope="module")
def airflow() -> Path:
    """Its program; installed once."""
    program = ENVIRONMENT / "bin" / "airflow"
    if not program.exists():
        venv.create(ENVIRONMENT, with_pip=True)
        pip = [str(ENVIRONMENT / "bin" / "pip"), "install", "--quiet", "apache-airflow>=3,<4"]
        subprocess.run(pip, check=True)
    return program


class Airflow:
    """One DAG of one task, in an Airflow of its own."""

    def __init__(self, program: Path, home: Path, bench: Bench, corpus: Path, binary: Path) -> None:
        self._program = program
        self._environment = os.environ | {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        }
        (home / "dags").mkdir(parents=True)
        dag = DAG.format(root=str(ROOT), binary=str(binary), corpus=str(corpus), home=str(bench.home))
        (home / "dags" / "summaries.py").write_text(dag)
        self._log = home / "test.log"
        self._run("db", "migrate").wait()

    def _run(self, *words: str) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [str(self._program), *words], env=self._environment, stdout=log, stderr=subprocess.STDOUT
            )

    def test(self) -> "subprocess.Popen[bytes]":
        """`airflow dags test`: the DAG once, its retries among it."""
        return self._run("dags", "test", "summaries")

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def num_tries(self) -> int:
        return self.log.count("starting task_id=summarize")


def records(bench: Bench) -> list[dict[str, Any]]:
    """Of the runs, the oldest first."""
    paths = bench.home.glob("checkpoints/*/seed-*/corpora/*/runs/*.json")
    return sorted((json.loads(path.read_bytes()) for path in paths), key=lambda record: record["started_at"])


def test_a_try_that_is_stopped_is_followed_by_one_that_goes_on(
    bench: Bench, airflow: Path, tmp_path: Path
) -> None:
    """75 is tried again, and the second try computes what the first left; the summary is in the log and in XCom."""
    bench.write_spec("prefill_tokens_per_s = 1500")
    wrapper = tmp_path / "batchrun"
    wrapper.write_text(STOPPED_ONCE.format(mark=tmp_path / "tried", binary=BINARY))
    wrapper.chmod(0o755)
    flow = Airflow(airflow, tmp_path / "airflow", bench, bench.corpus(texts(300)), wrapper)
    assert 0 == flow.test().wait(300), flow.log
    assert 2 == flow.num_tries
    assert "batchrun ended with 75: SIGTERM" in flow.log
    rows = records(bench)[-1]["rows"]
    assert [300, 300] == [rows["ok"], rows["reused"] + rows["computed"]]
    assert 0 < rows["reused"] < 300
    assert "Pushing xcom" in flow.log
    print(f"\nthe second try took over {rows['reused']} of 300 rows")


def test_a_corpus_that_is_not_there_is_not_tried_again(bench: Bench, airflow: Path, tmp_path: Path) -> None:
    """66 is AirflowFailException: one try, of three."""
    flow = Airflow(airflow, tmp_path / "airflow", bench, bench.home / "missing.parquet", BINARY)
    assert 0 != flow.test().wait(300)
    assert 1 == flow.num_tries
    assert "batchrun ended with 66" in flow.log


def test_a_task_that_is_killed_ends_its_run(bench: Bench, airflow: Path, tmp_path: Path) -> None:
    """SIGTERM to the task: the run ends in good order, nothing of it is left, and the next try goes on."""
    bench.write_spec("prefill_tokens_per_s = 600")
    flow = Airflow(airflow, tmp_path / "airflow", bench, bench.corpus(texts(300)), BINARY)
    process = flow.test()
    deadline = time.monotonic() + 200
    while not bench.segments():
        assert process.poll() is None, flow.log
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    process.wait(200)
    first, second = records(bench)
    assert ["interrupted", "SIGTERM", 75] == [first[name] for name in ("state", "stop_reason", "exit_code")]
    assert not Path(f"/proc/{first['pid']}").exists()
    assert ["complete", first["rows"]["computed"]] == [second["state"], second["rows"]["reused"]]
