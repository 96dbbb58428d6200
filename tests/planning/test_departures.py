"""What left a corpus between two plans."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrun.planning.departures import Departures, count_departures, forget_plans, keep_plan, plan_of
from batchrun.planning.plan import PLAN_SCHEMA
from batchrun.workspace import CorpusPaths


def write_plan(path: Path, keys: list[int | None]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"source": 0, "row": number, "hash_hi": key, "hash_lo": key} for number, key in enumerate(keys)]
    pq.write_table(pa.Table.from_pylist(rows, schema=PLAN_SCHEMA), path)
    return path


@pytest.fixture
def paths(tmp_path: Path) -> CorpusPaths:
    return CorpusPaths(checkpoint=tmp_path / "corpus", spool=tmp_path / "spool")


def test_distinct_texts_are_counted(tmp_path: Path) -> None:
    """A text that stood twice left once; rows without a text are none."""
    before = write_plan(tmp_path / "a.parquet", [1, 1, 2, 3, None, None, 4])
    now = write_plan(tmp_path / "b.parquet", [5, 4, 4, 3, None])
    assert Departures(departed=2, stayed=2) == count_departures(before, now, tmp_path)
    assert Departures(departed=0, stayed=4) == count_departures(before, before, tmp_path)


@pytest.mark.parametrize("content", [None, b"", b"PAR1 not really"])
def test_a_plan_that_can_not_be_read_is_none(content: bytes | None, tmp_path: Path) -> None:
    """It is a count for people: a run does not fail for it."""
    now = write_plan(tmp_path / "now.parquet", [1])
    before = tmp_path / "before.parquet"
    if content is not None:
        before.write_bytes(content)
    assert count_departures(before, now, tmp_path) is None


@pytest.mark.parametrize("links", [True, False])
def test_a_plan_is_kept_while_a_newer_one_is_run(
    paths: CorpusPaths, monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    """The first planning after a completed run keeps its plan, later ones leave it; with hard links or without."""
    if not links:
        monkeypatch.setattr(Path, "hardlink_to", lambda *_: (_ for _ in ()).throw(OSError("not here")))
    assert plan_of(paths, "one") is None
    keep_plan(paths, "one")
    first = write_plan(paths.plan, [1]).read_bytes()
    assert paths.plan == plan_of(paths, "one")
    for keys in ([2], [3]):
        keep_plan(paths, "one")
        write_plan(paths.plan.with_name("new"), list(keys)).replace(paths.plan)
        kept = plan_of(paths, "one")
        assert kept is not None
        assert first == kept.read_bytes()
    keep_plan(paths, "two")
    assert not paths.plan_before("one").exists()
    assert paths.plan_before("two") == plan_of(paths, "two")
    forget_plans(paths)
    assert [paths.plan] == list(paths.checkpoint.iterdir())
