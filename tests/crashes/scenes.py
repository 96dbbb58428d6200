"""Workspaces in which every stage has something to do, and what must hold in them whatever happened."""

import importlib
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from batchrun.cli.main import code_of
from batchrun.records import Summary
from batchrun.store.checkpoints import COMPACT_FROM, Checkpoints
from tests.ages import days_ago
from tests.commands import LEAD_SPEC, texts
from tests.crashes.children import in_child
from tests.kills import keys_of
from tests.ledger import calls, noting

NUM_ROWS, NUM_OLD = 48, 24
OLD_DAYS = 40


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A folder that is `home` again and again, always as it was in the beginning."""

    home: Path
    template: Path
    log: Path

    @property
    def corpus(self) -> Path:
        return self.home / "corpus.parquet"

    @property
    def old(self) -> Path:
        return self.home / "old.parquet"

    @property
    def output(self) -> Path:
        return self.home / "corpus.summaries.parquet"

    @property
    def ledger(self) -> Path:
        return self.home.parent / "ledger"

    def reset(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.copytree(self.template, self.home)

    def keep(self) -> None:
        """What `home` is now, it is in the beginning from here on."""
        shutil.rmtree(self.template, ignore_errors=True)
        shutil.copytree(self.home, self.template)

    def call(self, *words: object) -> int:
        return int(code_of([*map(str, words), "--home", str(self.home)]))

    def segments(self) -> list[Path]:
        return sorted(self.home.glob("checkpoints/*/seed-0/segments/*.parquet"))


def prepare(folder: Path, model: Path) -> Stage:
    """A workspace whose memo table is many small segments of an older corpus, to be compacted; a newer corpus has
    its texts, new ones, two that are equal, one empty and one too long.
    """
    stage = Stage(home=folder / "home", template=folder / "template", log=folder / "log")
    (stage.home / "jobs").mkdir(parents=True)
    spec = LEAD_SPEC.format(model=model, options="") + "\n[buckets]\nedges = [64, 96]\n"
    (stage.home / "jobs" / "summarize.toml").write_text(spec)
    known = texts(NUM_ROWS)
    _write(stage.old, [*known[: NUM_OLD - 1], "only in the older corpus"])
    _write(stage.corpus, [*known, known[-1], "", "too long " * 400])
    load_modules(in_child(lambda: _first_run(stage), stage.log))
    assert len(stage.segments()) >= COMPACT_FROM
    stage.keep()
    return stage


def _first_run(stage: Stage) -> list[str]:
    """The older corpus, weeks ago; the names of the modules that a run needs."""
    with patch("batchrun.store.checkpoints.COMPACT_FROM", 1 << 20), days_ago(OLD_DAYS):
        assert 0 == row_by_row(stage, lambda: stage.call("submit", stage.old, "-q"))
    return sorted(sys.modules)


def load_modules(names: list[str]) -> None:
    """Read modules once here instead of once in every child, which is most of what it would do."""
    for name in names:
        with suppress(ImportError):
            importlib.import_module(name)


def _write(path: Path, rows: list[str]) -> None:
    pq.write_table(pa.table({"id": range(len(rows)), "text": rows}), path)


def row_by_row(stage: Stage, act: Callable[[], int]) -> int:
    """Run, with a segment for every row, and every call that is computed written down."""
    stage.ledger.unlink(missing_ok=True)
    commit = Checkpoints.commit

    def one_by_one(checkpoints: Checkpoints, rows: Sequence[Summary]) -> None:
        for row in rows:
            commit(checkpoints, [row])

    with patch.object(Checkpoints, "commit", one_by_one), noting(stage.ledger):
        return act()


def submit(stage: Stage) -> int:
    return row_by_row(stage, lambda: stage.call("submit", stage.corpus, "-q", "--max-error-rate", "1"))


def collect(stage: Stage) -> int:
    return stage.call("gc", "--yes", "--quiet")


def durable_keys(stage: Stage) -> set[str]:
    return {key for path in stage.segments() for key in keys_of(path)}


def check_submit(stage: Stage, expected: pa.Table, promised: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """The next run ends well, computes nothing that is durable or was promised, and gives the undisturbed output."""
    durable = durable_keys(stage)
    assert promised <= durable, f"{len(promised - durable)} committed rows are lost"
    assert 0 == submit(stage), stage.log.read_text(errors="replace")
    assert not durable & calls(stage.ledger).keys(), "what is durable is computed again"
    assert expected.equals(pq.read_table(stage.output)), "another output than the undisturbed one"
    assert 0 == stage.call("verify", "summarize", "-q")
    leftovers = [path for path in stage.home.rglob(".tmp-*") if "scratch" not in path.parts]
    assert not leftovers, f"left over: {leftovers}"


def check_collect(stage: Stage, expected: pa.Table) -> None:
    """What is kept is whole; collecting goes on; the corpus that was kept is not computed again."""
    assert 0 == stage.call("verify", "summarize", "-q")
    assert 0 == collect(stage)
    assert 0 == submit(stage), stage.log.read_text(errors="replace")
    assert not calls(stage.ledger), "what was kept is computed again"
    assert expected.equals(pq.read_table(stage.output))
