"""The memo table is a lattice: the same whatever the order, the segments and the compactions."""

from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchrun.database import Database
from batchrun.records import ErrorType, Summary
from batchrun.store import checkpoints as checkpoints_module
from batchrun.store import segments
from batchrun.store.checkpoints import Checkpoints
from batchrun.workspace import JobPaths
from tests.store.rows import failed, key, ok, partial

rows_of_few_keys = st.lists(
    st.one_of(
        st.builds(ok, st.integers(0, 4), st.sampled_from(["a", "b"])),
        st.builds(failed, st.integers(0, 4), st.integers(1, 3)),
        st.builds(partial, st.integers(0, 4), st.integers(1, 3)),
    ),
    max_size=16,
)


def open_store(folder: Path, run_id: str = "run") -> Checkpoints:
    return Checkpoints(JobPaths(job=folder / "job", spools=folder / "spools", seed=0), run_id)


def contents(store: Checkpoints) -> list[dict[str, object]]:
    found: list[dict[str, object]] = store.table().to_pylist()
    return sorted(found, key=lambda row: (row["hash_hi"], row["hash_lo"]))


def winners(rows: list[Summary]) -> list[dict[str, object]]:
    """The table by definition: of each key the row of greatest precedence."""
    best: dict[bytes, Summary] = {}
    for row in rows:
        best[row.key] = max(best.get(row.key, row), row, key=segments.precedence)
    table = segments.to_table(sorted(best.values(), key=lambda row: row.key))
    found: list[dict[str, object]] = table.to_pylist()
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=rows_of_few_keys, data=st.data())
def test_any_order_any_segments_any_compaction(rows: list[Summary], data: st.DataObject) -> None:
    """Rows in any order, split into any segments, compacted anywhere, give the same table."""
    order = data.draw(st.permutations(rows))
    with TemporaryDirectory() as name, patch.object(checkpoints_module, "COMPACT_FROM", 2):
        store = open_store(Path(name))
        while order:
            size = data.draw(st.integers(1, len(order)))
            store.commit(order[:size])
            order = order[size:]
            if data.draw(st.booleans()):
                store.compact()
        assert winners(rows) == contents(open_store(Path(name), "another"))


@given(rows=st.lists(rows_of_few_keys.filter(bool).map(lambda found: found[0]), min_size=3, max_size=3))
def test_precedence_is_a_total_order(rows: list[Summary]) -> None:
    """Merging is commutative, associative and idempotent, since the greatest of an order wins."""
    one, two, three = (segments.precedence(row) for row in rows)
    assert max([max([one, two]), three]) == max([one, max([two, three])]) == max([three, two, one])
    assert one == max(one, one)


@pytest.mark.parametrize(
    ("loser", "winner"),
    [
        (failed(1, attempts=9), ok(1)),
        (partial(1, 100), failed(1)),
        (failed(1, attempts=1), failed(1, attempts=2)),
        (partial(1, 5), partial(1, 6)),
    ],
)
def test_what_beats_what(loser: Summary, winner: Summary, tmp_path: Path) -> None:
    """Ok beats failed beats partial; more attempts beat fewer; the longer partial beats the shorter."""
    store = open_store(tmp_path)
    store.commit([winner])
    store.commit([loser])
    assert [str(winner.status)] == store.table()["status"].to_pylist()
    assert segments.precedence(winner) == reduce(max, map(segments.precedence, [loser, winner]))


def test_settled_keys_say_what_is_done(tmp_path: Path) -> None:
    """Ok and permanent failures are done; transient failures are not, and tell their attempts."""
    store = open_store(tmp_path)
    store.commit([ok(1), failed(2, 3), failed(3, 1, ErrorType.EMPTY_OUTPUT), partial(4, 2)])
    assert {1: (True, 0), 2: (False, 3), 3: (True, 1)} == settled(store, retry_all=False)
    assert {1: (True, 0), 2: (False, 3), 3: (False, 1)} == settled(store, retry_all=True)


def settled(store: Checkpoints, *, retry_all: bool) -> dict[int, tuple[bool, int]]:
    numbers = {key(number): number for number in range(10)}

    def consume(reader: pa.RecordBatchReader) -> dict[int, tuple[bool, int]]:
        rows = reader.read_all().to_pylist()
        keys = [row["hash_hi"].to_bytes(8, "big") + row["hash_lo"].to_bytes(8, "big") for row in rows]
        return {numbers[found]: (row["done"], row["attempts"]) for found, row in zip(keys, rows, strict=True)}

    return store.settled_keys(consume, retry_all=retry_all)


def test_an_empty_store_has_an_empty_table(tmp_path: Path) -> None:
    """A job without segments is a job without rows."""
    store = open_store(tmp_path)
    assert 0 == store.table().num_rows
    assert {} == store.count_by_rank()


def test_compaction_keeps_one_file_and_every_row(tmp_path: Path) -> None:
    """Many small segments become one; a second compaction changes nothing."""
    store = open_store(tmp_path)
    for number in range(20):
        store.commit([ok(number)])
    before = contents(store)
    store.compact()
    assert 1 == len(segments.listed(store.paths.segments))
    assert before == contents(open_store(tmp_path))
    store.compact()
    assert 1 == len(segments.listed(store.paths.segments))


def test_wide_rows_need_no_more_of_the_database_than_narrow_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 MB of summaries are compacted under a limit of 24 MB: the rows themselves do not pass through it."""
    monkeypatch.setattr(Database.__init__, "__kwdefaults__", {"memory_limit": "24MB"})
    store = open_store(tmp_path)
    wide = "".join(chr(33 + n * n % 90) for n in range(3000))
    for number in range(checkpoints_module.COMPACT_FROM):
        store.commit([ok(number * 1250 + row, f"{number} {row} {wide}") for row in range(1250)])
    store.compact()
    [path] = segments.listed(store.paths.segments)
    assert checkpoints_module.COMPACT_FROM * 1250 == pq.read_metadata(path).num_rows


def test_compaction_does_not_launder_damage(tmp_path: Path) -> None:
    """A bit that flips in a segment of one's own, before its compaction, is found: its row is gone, not wrong."""
    store = open_store(tmp_path)
    for number in range(20):
        store.commit([ok(number)])
    path = segments.listed(store.paths.segments)[7]
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 8
    path.write_bytes(data)
    store.compact()
    assert [path] == [found.segment for found in store.damages]
    assert 19 == store.table().num_rows
    assert {f"summary {number}" for number in range(20)} - {"summary 7"} == set(
        store.table()["summary"].to_pylist()
    )


def test_two_compactions_at_once(tmp_path: Path) -> None:
    """The one that finds its files taken away leaves it at that; no row is lost."""
    one, two = open_store(tmp_path, "one"), open_store(tmp_path, "two")
    for number in range(20):
        one.commit([ok(number)])
    real = checkpoints_module.find_winners
    calls = []

    def other_first(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) == 1:
            two.compact()
        real(*arguments)  # type: ignore[arg-type]

    with patch.object(checkpoints_module, "find_winners", other_first):
        one.compact()
    assert 20 == open_store(tmp_path, "reader").table().num_rows


def test_a_folder_name_with_an_equals_sign_is_a_name(tmp_path: Path) -> None:
    """DuckDB would read it as a partition, and add a column."""
    store = open_store(tmp_path / "date=2026-11-01")
    for number in range(20):
        store.commit([ok(number)])
    store.compact()
    assert 1 == len(segments.listed(store.paths.segments))
    assert 20 == store.table().num_rows


def test_a_reader_whose_file_is_compacted_away_lists_again(tmp_path: Path) -> None:
    """Another run's compaction between listing and reading costs a second listing, not the run."""
    reader, writer = open_store(tmp_path, "reader"), open_store(tmp_path, "writer")
    for number in range(20):
        writer.commit([ok(number)])
    real = checkpoints_module.find_winners
    calls = []

    def compact_first(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) == 1:
            writer.compact()
        real(*arguments)  # type: ignore[arg-type]

    with patch.object(checkpoints_module, "find_winners", compact_first):
        assert {2: 20} == reader.count_by_rank()
    assert 2 <= len(calls)


def test_looking_for_partials_lists_again_where_a_file_is_compacted_away(tmp_path: Path) -> None:
    """Two corpora of one job may run side by side: the end of one does not end the start of the other."""
    reader, writer = open_store(tmp_path, "reader"), open_store(tmp_path, "writer")
    for number in range(20):
        writer.commit([partial(number, 2)])
    real = reader.intact_segments
    listings = []

    def compact_after(**arguments: bool) -> list[Path]:
        listings.append(real(**arguments))
        if len(listings) == 1:
            writer.compact()
        return listings[-1]

    with patch.object(reader, "intact_segments", compact_after):
        assert reader.has_partials()
    assert [20, 1] == [len(files) for files in listings]


def test_leftovers_of_dead_runs_are_removed_and_of_living_ones_kept(tmp_path: Path) -> None:
    """A half-written temporary file does not disturb, and goes when its run is dead."""
    store = open_store(tmp_path)
    store.commit([ok(1)])
    dead = store.paths.segments / ".tmp-20200101T000000-abcdef-00112233"
    own = store.paths.segments / ".tmp-run-00112233"
    dead.write_bytes(b"PAR1 half")
    own.write_bytes(b"PAR1 half")
    assert 1 == store.table().num_rows
    store.clean()
    assert [False, True] == [dead.exists(), own.exists()]
