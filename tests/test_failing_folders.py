"""Folders that can not be written, and folders that vanish while a run goes on: a clear end, and nothing damaged."""

import ctypes
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from batchrun.engines.lead import LeadEngine
from batchrun.records import Completion
from tests.commands import Bench, set_engine, texts

NUM_ROWS = 12
CAP_DAC_OVERRIDE, PR_CAPBSET_DROP = 1, 24  # capabilities(7), prctl(2)


def obey_modes() -> None:
    """Root, too, from the next exec on; who is not root does anyway."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    before = folder.stat().st_mode
    folder.chmod(0o555)
    try:
        yield
    finally:
        folder.chmod(before)


def complete(bench: Bench, corpus: Path, *options: object) -> None:
    """The next submit ends well, and `verify` finds nothing."""
    done = bench.submit(corpus, *options)
    assert (0, NUM_ROWS) == (done.code, done.json["rows"]["ok"]), done.err
    checked = bench.run("verify", done.json["job_id"])
    assert 0 == checked.code, checked.err


@pytest.mark.parametrize(
    ("folder", "code", "said"),
    [
        ("checkpoints", 74, "checkpoints"),
        ("checkpoints/{job}/seed-0/segments", 74, "segments"),
        ("checkpoints/{job}/seed-0/corpora/{corpus}/runs", 74, "runs"),
        ("buckets", 74, "buckets"),
        ("out", 73, "out, can not be written"),
    ],
)
def test_a_folder_that_can_not_be_written(bench: Bench, folder: str, code: int, said: str) -> None:
    """The end names it and what to do; when it can be written again the same submit goes on."""
    corpus = bench.corpus(texts(NUM_ROWS))
    out = bench.home / "out"
    out.mkdir()
    if "{job}" in folder:
        first = bench.submit(bench.corpus(texts(1)), "-o", out / "summaries.parquet").json
        found = next(bench.home.glob("checkpoints/*/seed-0/corpora/*")).name
        folder = folder.format(job=first["job_id"], corpus=found)
        bench.corpus(texts(NUM_ROWS))
    (bench.home / folder).mkdir(exist_ok=True)
    with read_only(bench.home / folder):
        process = bench.start(
            "submit", corpus, "-o", out / "summaries.parquet", "--json", preexec_fn=obey_modes
        )
        _, err = process.communicate(timeout=60)
    assert code == process.returncode, err
    assert said in err
    assert "  → " in err
    complete(bench, corpus, "-o", out / "summaries.parquet")
    assert NUM_ROWS == pq.read_metadata(out / "summaries.parquet").num_rows


def vanishing(folder: Callable[[], Path], after: int) -> Callable[[LeadEngine], list[Completion]]:
    """A step of the engine that removes a folder when so many steps were made."""
    real, num_steps = LeadEngine.step, 0

    def step(engine: LeadEngine) -> list[Completion]:
        nonlocal num_steps
        num_steps += 1
        if num_steps == after:
            shutil.rmtree(folder())
        return real(engine)

    return step


@pytest.mark.parametrize(
    ("folder", "codes", "said"),
    [
        ("checkpoints/*/seed-0/segments", {74}, "segments"),
        ("checkpoints/*/seed-0/corpora/*", {74}, "corpora"),
        ("checkpoints/*", {74}, "checkpoints"),
        ("buckets/*", {0, 74}, ""),
        ("buckets/*/seed-0/*[0-9a-f]", {0}, ""),
        ("out", {73}, "out, is not there"),
    ],
)
@pytest.mark.parametrize("after", [2, 5])
def test_a_folder_that_vanishes_while_a_run_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, folder: str, codes: set[int], said: str, after: int
) -> None:
    """A clear end with what to do next; when the output's folder is there again the same submit is complete."""
    set_engine(bench.home / "jobs" / "summarize.toml", max_num_seqs=2)
    corpus = bench.corpus(texts(NUM_ROWS))
    out = bench.home / "out"
    out.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(LeadEngine, "step", vanishing(lambda: next(bench.home.glob(folder)), after))
        ended = bench.submit(corpus, "-o", out / "summaries.parquet")
    assert ended.code in codes, ended.err
    assert said in ended.err
    assert ended.code == 0 or "  → " in ended.err
    out.mkdir(exist_ok=True)
    complete(bench, corpus, "-o", out / "summaries.parquet")
    assert list(range(NUM_ROWS)) == pq.read_table(out / "summaries.parquet")["doc_id"].to_pylist()
