"""What a scheduler reads of a run: the summary as a file, the metrics as a file, the log as JSON."""

import errno
import json
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from prometheus_client.parser import text_string_to_metric_families

from batchrun import api, atomic_file
from batchrun.telemetry.metrics_file import OTHERS, SCALING
from batchrun.telemetry.requests import SCHEMA
from tests.commands import Bench, Result, texts


def metrics_of(path: Path) -> dict[str, dict[str, float]]:
    """By family, and in it by the values of the labels that are not the job's."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            named = [
                value for name, value in sample.labels.items() if name not in {"job_id", "seed", "corpus"}
            ]
            found.setdefault(sample.name, {})[",".join(named)] = sample.value
    return found


def test_the_summary_is_a_file_too(bench: Bench) -> None:
    """The same object as --json, also where the run did not begin."""
    path = bench.home / "summary.json"
    done = bench.submit(bench.corpus(texts(5)), "--summary-file", path)
    assert done.json == json.loads(path.read_text())
    failed = bench.submit(bench.home / "missing.parquet", "--summary-file", path)
    assert failed.json == json.loads(path.read_text())
    assert 66 == json.loads(path.read_text())["exit_code"]


def test_a_summary_that_can_not_be_renamed_into_place_is_written_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A termination log is a mount of its own; nothing is left beside it."""
    path = bench.home / "log" / "termination-log"
    path.parent.mkdir()
    path.touch()
    publish = atomic_file.publish

    def busy(temporary: Path, target: Path) -> None:
        if target == path:
            raise OSError(errno.EBUSY, "Device or resource busy")
        publish(temporary, target)

    monkeypatch.setattr(atomic_file, "publish", busy)
    done = bench.submit(bench.corpus(texts(5)), "--summary-file", path)
    assert done.json == json.loads(path.read_text())
    assert [path] == list(path.parent.iterdir())


def test_the_metrics_are_in_prometheus_text(bench: Bench) -> None:
    """Rows by status, zeros too, tokens by type, phases, and what an autoscaler may read."""
    path = bench.home / "batchrun.prom"
    done = bench.submit(bench.corpus(["", *texts(5)]), "--metrics-file", path)
    metrics = metrics_of(path)
    assert {"ok": 5, "failed": 0, "skipped": 1, "pending": 0} == metrics["batchrun_rows"]
    assert done.json["tokens"]["input"] == metrics["batchrun_tokens"]["input"]
    assert {"planning", "loading", "running", "publishing", "total"} == set(
        metrics["batchrun_phase_duration_seconds"]
    )
    assert {f"batchrun_{name}" for name in (*SCALING, *OTHERS)} <= set(metrics)
    assert {"": 0} == metrics["batchrun_running"] == metrics["batchrun_exit_code"]
    assert math.isnan(metrics["batchrun_gpu_utilization"][""])
    assert metrics["batchrun_last_success_timestamp_seconds"][""] > 1.7e9


def test_the_last_success_outlives_a_run_that_fails(bench: Bench) -> None:
    """So that an alert on its age is right."""
    path = bench.home / "batchrun.prom"
    corpus = bench.corpus(texts(5))
    bench.submit(corpus, "--metrics-file", path)
    before = metrics_of(path)["batchrun_last_success_timestamp_seconds"]
    bench.corpus(texts(9))
    bench.submit(corpus, "--metrics-file", path, "--time-budget", "0.1s")
    after = metrics_of(path)
    assert before == after["batchrun_last_success_timestamp_seconds"]
    assert {"": 4} == after["batchrun_exit_code"]


def test_metrics_that_can_not_be_written_end_no_run(bench: Bench) -> None:
    """It is said once, and the run is what it is without them."""
    done = bench.submit(bench.corpus(texts(5)), "--metrics-file", bench.home / "gone" / "batchrun.prom")
    assert (0, 5) == (done.code, done.json["rows"]["ok"])
    assert 1 == done.err.count("the metrics can not be written")


@pytest.mark.parametrize(("corpus", "code"), [("corpus.parquet", 0), ("missing.parquet", 66)])
def test_a_summary_that_can_not_be_written_changes_no_end(bench: Bench, corpus: str, code: int) -> None:
    """The exit code and the JSON are those of the run."""
    bench.corpus(texts(5))
    done = bench.submit(bench.home / corpus, "--summary-file", bench.home / "gone" / "summary.json")
    assert (code, code) == (done.code, done.json["exit_code"])
    assert "the summary can not be written" in done.err


def test_no_metric_is_of_a_request() -> None:
    """Request telemetry is never exported."""
    assert not {*SCALING, *OTHERS} & set(SCHEMA.names)


@pytest.mark.parametrize("corpus", ["corpus.parquet", "missing.parquet"])
def test_a_log_of_json_is_json_to_its_last_line(bench: Bench, corpus: str) -> None:
    """Progress, the end, and errors."""
    bench.corpus(texts(5))
    done = bench.submit(bench.home / corpus, "--log-format", "json")
    lines = [json.loads(line) for line in done.err.splitlines()]
    assert all({"time", "message"} <= set(line) for line in lines)
    assert (66 == done.code) == ("exit_code" in lines[-1])


def bug(*_: object, **__: object) -> NoReturn:
    raise LookupError("nobody foresaw this")


def kill_with(number: signal.Signals) -> Callable[..., None]:
    def kill(*_: object, **__: object) -> None:
        before = signal.getsignal(number)
        if before is signal.SIG_IGN:  # as a shell leaves it to what runs in its background
            signal.signal(number, signal.default_int_handler)
        os.kill(os.getpid(), number)

    return kill


ENDINGS: dict[str, tuple[list[str], Callable[..., None] | None, tuple[int, str, str]]] = {
    # words, what submit does instead, the object's exit_code, state and stop_reason
    "an unknown option": (["--frob"], None, (2, "failed", "No such option '--frob'. Did you mean '--job'?")),
    "a value that is none": (["--limit", "x"], None, (2, "failed", "'x' is not a valid integer range.")),
    "no time": (["--deadline", "soon"], None, (2, "failed", "--deadline 'soon' is no time")),
    "a window that is over": (
        ["--deadline", "2020-01-01T06:00+00:00"], None, (4, "interrupted", "deadline")
    ),
    "no corpus": (["/missing.parquet", "-o", "/missing.summaries.parquet"], None, (66, "failed", "is not there")),
    "no spec": (["--job", "/missing.toml"], None, (78, "failed", "there is no job spec")),
    "a bug": ([], bug, (70, "failed", "LookupError('nobody foresaw this')")),
    "SIGTERM": ([], kill_with(signal.SIGTERM), (75, "interrupted", "SIGTERM")),
    "SIGINT": ([], kill_with(signal.SIGINT), (130, "interrupted", "SIGINT")),
}  # fmt: skip


def objects(result: Result) -> list[dict[str, object]]:
    """The lines of standard error; each must be an object with its time."""
    lines = [json.loads(line) for line in result.err.splitlines()]
    assert lines
    assert all({"time", "message"} <= set(line) for line in lines)
    return lines


@pytest.mark.parametrize("case", ENDINGS)
def test_an_end_before_the_run_is_told_as_asked(
    case: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever on the command line the fault is: the log is objects, and the summary is on standard output and in
    its file.
    """
    words, instead, (code, state, reason) = ENDINGS[case]
    if instead is not None:
        monkeypatch.setattr(api, "submit", instead)
    path = bench.home / "summary.json"
    asked = ["--json", "--log-format", "json", "--summary-file", path]
    done = bench.run("submit", bench.corpus(texts(2)), *asked, *words)
    lines = objects(done)
    assert ["exit_code" in line for line in lines][-1] == (state == "failed" or code == 4)
    assert (code, code, state) == (done.code, done.json["exit_code"], done.json["state"])
    assert reason in done.json["stop_reason"]
    assert done.json == json.loads(path.read_text())


def test_a_bug_in_a_run_is_told_with_the_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary has its ids and rows, the log one object with the traceback."""
    monkeypatch.setattr("batchrun.runner.publish_plan", bug)
    done = bench.submit(bench.corpus(texts(2)), "--log-format", "json")
    assert (70, 70, 2) == (done.code, done.json["exit_code"], done.json["rows"]["computed"])
    assert done.json["run_id"]
    assert "nobody foresaw this" in str(objects(done)[-1]["traceback"])


def test_the_environment_can_ask_for_objects(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run's log, and of the error for a command that there is not."""
    monkeypatch.setenv("BATCHRUN_LOG_FORMAT", "json")
    assert "complete" in str(
        [line["message"] for line in objects(bench.run("submit", bench.corpus(texts(2))))]
    )
    assert [2] == [line["exit_code"] for line in objects(bench.run("frobnicate"))]
