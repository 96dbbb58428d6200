"""batchrun from Python: the functions are what the commands do."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

import batchrun
from batchrun.errors import BatchrunError, CorpusNotFoundError, ExitCode, UsageError, WindowOverError
from batchrun.reporter import Reporter
from batchrun.run_record import RunRecord, RunState
from tests.commands import Bench, texts


class Watcher(Reporter):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_corpus_is_planned_submitted_shown_and_published(bench: Bench) -> None:
    """With the same results as on the command line, and nothing printed."""
    corpus, watcher = bench.corpus(["", *texts(5)]), Watcher()
    planned = batchrun.plan(corpus, home=bench.home)
    assert (6, 5) == (planned.counts.total, planned.counts.to_run)
    record = batchrun.submit(corpus, home=bench.home, reporter=watcher)
    assert (RunState.COMPLETE, 0, 5) == (record.state, record.exit_code, record.rows.ok)
    assert any("to run on lead" in note for note in watcher.notes)
    assert [record.run_id] == [run.run_id for run in batchrun.status(home=bench.home)]
    rows = batchrun.results(record.job_id, bench.home / "again.parquet", home=bench.home)
    assert (5, 1) == (rows.ok, rows.skipped)
    assert bench.output() == bench.output("again.parquet")
    again = bench.submit(corpus).json
    assert (record.job_id, 5) == (again["job_id"], again["rows"]["reused"])
    assert 0 == batchrun.resume("summarize", home=bench.home).rows.computed


def test_an_end_that_can_go_on_is_returned(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a record, with its exit code; a time budget may be a number of seconds."""
    monkeypatch.setattr("batchrun.window.PUBLISHING_SECONDS", 60.0)
    record = batchrun.submit(bench.corpus(texts(5)), home=bench.home, time_budget=59)
    assert (ExitCode.WINDOW_OVER, "time_budget", 5) == (
        record.exit_code,
        record.stop_reason,
        record.rows.pending,
    )


def submit_nothing(bench: Bench) -> RunRecord:
    return batchrun.submit(bench.home / "missing.parquet", home=bench.home)


def submit_several(bench: Bench) -> RunRecord:
    return batchrun.submit([bench.home / "a.parquet", bench.home / "b.parquet"], home=bench.home)


def submit_too_late(bench: Bench) -> RunRecord:
    return batchrun.submit("c.parquet", home=bench.home, deadline=datetime.now(UTC) - timedelta(hours=1))


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (submit_nothing, CorpusNotFoundError),
        (submit_several, UsageError),
        (submit_too_late, WindowOverError),
    ],
)
def test_what_is_wrong_is_raised(
    bench: Bench, call: Callable[[Bench], RunRecord], kind: type[BatchrunError]
) -> None:
    """With what happened, and what to do next."""
    with pytest.raises(kind) as caught:
        call(bench)
    assert caught.value.hint


def test_the_package_is_quick_to_import() -> None:
    """Neither Arrow nor an engine is loaded before a function is called."""
    code = "import sys, batchrun; batchrun.status; print([n for n in ('pyarrow', 'torch', 'vllm') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]\n" == done.stdout


def test_another_name_is_no_function() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sumbit'"):
        batchrun.sumbit  # noqa: B018
