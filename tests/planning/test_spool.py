"""The spool on disk: its order, and how it is cut down."""

from pathlib import Path

import pyarrow as pa
import pytest

from batchrun.keys import document_key
from batchrun.planning import spool
from batchrun.prompts.tokenizer import Tokenizer
from batchrun.records import Bucket
from tests.fixtures import tokenizer_of
from tests.planning.plans import digits, make_batch, make_plan


@pytest.fixture
def tokenizer(tiny_llama: Path) -> Tokenizer:
    return tokenizer_of(tiny_llama)


def keys_table(*keys: bytes) -> pa.Table:
    return pa.table(
        {
            "hash_hi": pa.array([int.from_bytes(key[:8]) for key in keys], pa.uint64()),
            "hash_lo": pa.array([int.from_bytes(key[8:]) for key in keys], pa.uint64()),
        }
    )


def rows_of(*lengths: int) -> pa.RecordBatch:
    """Spool rows of as many tokens each."""
    ids = [pa.array(range(length), pa.uint32()).buffers()[1].to_pybytes()[: 4 * length] for length in lengths]
    numbers = pa.array(range(len(lengths)), pa.uint64())
    rest = [pa.nulls(len(lengths), field.type) for field in list(spool.SCHEMA)[3:]]
    return pa.record_batch([numbers, numbers, pa.array(ids, pa.large_binary()), *rest], schema=spool.SCHEMA)


def test_parts_come_in_the_order_of_work(tmp_path: Path) -> None:
    """Buckets of long documents first, by their number of tokens, also beyond a million; parts in theirs."""
    edges = [0, 16, 1024, 999_999, 1_000_000, 10_000_000]
    buckets = [
        Bucket(lower=lower, upper=upper) for lower, upper in zip(edges, [*edges[1:], None], strict=True)
    ]
    with spool.SpoolWriter(tmp_path / "spool", buckets) as writer:
        for number in (2, 0, 5, 1, 4, 3):
            writer.append(number, rows_of(1))
    (tmp_path / "spool" / ".tmp-x").write_text("")
    expected = [buckets[number].name for number in (5, 4, 3, 2, 1, 0)]
    found = spool.parts(tmp_path / "spool")
    assert expected == [part.path.parent.name for part in found]
    assert list(range(6)) == [part.number for part in found]


def test_no_spool_has_no_parts(tmp_path: Path) -> None:
    """A job may complete and its spool be deleted."""
    assert spool.parts(tmp_path / "none") == []
    spool.remove(tmp_path / "none")


def test_a_new_writer_begins_anew(tmp_path: Path) -> None:
    """What an earlier plan left would be run without being planned."""
    folder = tmp_path / "spool"
    for _ in range(2):
        with spool.SpoolWriter(folder, [Bucket(lower=0, upper=None)]) as writer:
            writer.append(0, rows_of(1, 2))
    assert [part.keys().num_rows for part in spool.parts(folder)] == [2]


def test_an_interrupted_writer_raises_what_interrupted_it(tmp_path: Path) -> None:
    """Its open files are closed; the plan's record, which comes later, never makes them valid."""

    def interrupted() -> None:
        with spool.SpoolWriter(tmp_path / "spool", [Bucket(lower=0, upper=None)]) as writer:
            writer.append(0, rows_of(1))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()


@pytest.mark.parametrize("window", [slice(0, 4), slice(1, 3), slice(2, 2), slice(3, 4)])
def test_token_rows_of_a_part_of_a_batch(window: slice) -> None:
    """Without a copy, wherever the batch begins; empty documents are empty."""
    batch = rows_of(3, 0, 5, 1)[window]
    ids, offsets = spool.token_rows(batch)
    assert [list(range(length)) for length in [3, 0, 5, 1][window]] == [
        ids[offsets[row] : offsets[row + 1]].tolist() for row in range(batch.num_rows)
    ]


def test_keep_only_leaves_the_rows_asked_for(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Parts left empty go, with their folders; the rest can be run as before."""
    plan = make_plan(tmp_path, tokenizer, [make_batch([digits(n) for n in (1, 2, 3, 10, 100, 101)])])
    before = plan.spool
    wanted = [document_key(digits(n)) for n in (2, 3, 101)]
    spool.keep_only(plan.paths.spool, keys_table(*wanted, document_key("of another corpus")), "run")
    expected = {
        name: [row for row in rows if row[0] in wanted]
        for name, rows in before.items()
        if name != "000016-000032"
    }
    assert expected == plan.spool
    assert sorted(path.name for path in plan.paths.spool.iterdir()) == ["000000-000016", "000032-"]
    with plan.work([(key, False, 1) for key in wanted]) as work:
        assert work.num_missing == 3
        assert [len(document.token_ids) for some in work.documents() for document in some] == [2, 3, 101]


def test_keep_only_nothing_deletes_all(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """As after a run without failures."""
    plan = make_plan(tmp_path, tokenizer, [make_batch([digits(1), digits(100)])])
    spool.keep_only(plan.paths.spool, keys_table(), "run")
    assert spool.parts(plan.paths.spool) == []
    assert list(plan.paths.spool.iterdir()) == []


def test_a_cut_that_was_stopped_leaves_each_row_once(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when the cut part is written and the whole one not yet removed: the whole one counts."""
    plan = make_plan(tmp_path, tokenizer, [make_batch([digits(n) for n in (1, 2, 3)])])
    before = plan.spool
    monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: None)
    spool.keep_only(plan.paths.spool, keys_table(document_key(digits(2))), "run")
    monkeypatch.undo()
    assert 2 == len(list(plan.paths.spool.glob("*/part-*")))
    assert before == plan.spool
    spool.keep_only(plan.paths.spool, keys_table(document_key(digits(2))), "run")
    assert [document_key(digits(2))] == [key for rows in plan.spool.values() for key, _ in rows]
