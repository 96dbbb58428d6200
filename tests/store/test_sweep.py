"""Memo rows that nothing needs: found, and taken out of the segments, at any instant without a loss."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from batchrun import atomic_file
from batchrun.database import statements
from batchrun.store import segments, sweep
from batchrun.store.checkpoints import Checkpoints
from tests.store.rows import failed, key, ok, partial
from tests.store.test_memo import contents, open_store


def wanted(*numbers: int) -> Callable[[], Iterator[pa.Table]]:
    """The keys of some documents, one table each, some twice."""

    def tables() -> Iterator[pa.Table]:
        for number in (*numbers, *numbers[:1]):
            halves = np.frombuffer(key(number), ">u8").astype(np.uint64)
            yield pa.table({"hash_hi": halves[:1], "hash_lo": halves[1:]})

    return tables


def filled(folder: Path) -> Checkpoints:
    """Five segments: documents 0 to 3 alone, a failure of 1 that 1 beats, and 4 and 5 in one."""
    store = open_store(folder)
    store.commit([ok(0)])
    store.commit([ok(1), failed(2, 3)])
    store.commit([failed(1, 5)])
    store.commit([partial(3, 7)])
    store.commit([ok(4), ok(5)])
    return store


def summaries(store: Checkpoints) -> list[str]:
    return sorted(str(row["summary"]) for row in contents(store))


def test_a_survey_changes_nothing(tmp_path: Path) -> None:
    """It counts what goes and names the segments that hold it."""
    store = filled(tmp_path)
    listed = segments.listed(store.paths.segments)
    found = sweep.survey(store, wanted(0, 1, 3, 4))
    assert [7, 3] == [found.num_rows, found.going]  # 2, 5 and the failure that lost
    assert [listed[1], listed[2], listed[4]] == found.segments
    assert 0 < found.num_bytes < sum(path.stat().st_size for path in found.segments)
    assert listed == segments.listed(store.paths.segments)


def test_a_sweep_keeps_what_is_wanted_and_wins(tmp_path: Path) -> None:
    """Rows of every status stay under their key; segments that lose nothing are not written again."""
    store = filled(tmp_path)
    before, whole = contents(store), segments.listed(store.paths.segments)
    found = sweep.sweep(store, wanted(0, 1, 3, 4))
    keys = {tuple(keys.to_pylist()[0].values()) for keys in wanted(0, 1, 3, 4)()}
    assert [row for row in before if (row["hash_hi"], row["hash_lo"]) in keys] == contents(
        open_store(tmp_path, "after")
    )
    left = segments.listed(store.paths.segments)
    assert 3 == len(left)
    assert {whole[0], whole[3]} < set(left)
    assert all(segments.is_intact(path) for path in left)
    assert 3 == len(found.segments)
    assert 0 == sweep.survey(store, wanted(0, 1, 3, 4)).going


def test_nothing_wanted_leaves_no_segment(tmp_path: Path) -> None:
    """And an empty table; an empty store is swept, too."""
    store = filled(tmp_path)
    assert 7 == sweep.sweep(store, wanted()).going
    assert [] == segments.listed(store.paths.segments)
    assert 0 == sweep.sweep(store, wanted()).num_rows


class KilledError(BaseException):
    """A kill: nothing after it happens."""


@pytest.mark.parametrize("instant", range(8))
def test_killed_at_any_step(instant: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the new segment has its name, between it and the old ones' end, after each of them: what is wanted
    is there, and a second sweep ends it.
    """
    store = filled(tmp_path)
    steps = 0
    for name in ("publish", "remove"):
        real = getattr(atomic_file, name)

        def counted(*arguments: Path, real: Callable[..., None] = real) -> None:
            nonlocal steps
            for turn in range(2):
                if steps == instant:
                    raise KilledError
                steps += 1
                if turn == 0:
                    real(*arguments)

        monkeypatch.setattr(atomic_file, name, counted)
    with pytest.raises(KilledError):
        sweep.sweep(store, wanted(0, 1, 3, 4))
    monkeypatch.undo()
    again = open_store(tmp_path, "again")
    assert {"summary 0", "summary 1", "summary 4", "None"} <= set(summaries(again))
    sweep.sweep(again, wanted(0, 1, 3, 4))
    assert ["None", "summary 0", "summary 1", "summary 4"] == summaries(again)
    assert 0 == sweep.survey(again, wanted(0, 1, 3, 4)).going


def test_rows_of_calls_belong_to_their_document() -> None:
    """Parts and merges of a long document stand in no plan: rows that name a parent must be kept with it."""
    assert ("parent_hi" in segments.SCHEMA.names) == (
        "parent_hi" in statements("batchrun.store")["row_documents"]
    )
