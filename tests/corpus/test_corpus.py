"""Several files as one corpus: order, limits, ids of every type, and what signs a corpus."""

import os
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrun.corpus import batching
from batchrun.corpus.corpus import ColumnWishes, open_corpus, signature
from batchrun.corpus.inputs import find_files
from batchrun.documents import DocumentBatch, Verdict, plain_values
from batchrun.records import ErrorType, RowStatus
from tests.corpus.reading import open_paths, read, write_lines, write_parquet
from tests.fixtures import ID_COLUMNS, not_utf8


@pytest.mark.parametrize("name", ID_COLUMNS)
def test_ids_of_any_type_are_carried_as_they_are(tmp_path: Path, name: str) -> None:
    """In the type and with the values that the file has, null or not, never by way of Python."""
    ids = ID_COLUMNS[name]
    rows = read(write_parquet(tmp_path / "a.parquet", {"id": ids, "text": ["a", "b", "c"]}))
    assert rows.texts == ["a", "b", "c"]
    assert pq.read_schema(tmp_path / "a.parquet").field("id").type == rows.column().type == ids.type
    assert ids == rows.column()
    assert {"doc_id": ids.type} == rows.corpus.output_types
    assert rows.corpus.differing == []


def test_files_in_the_order_given(tmp_path: Path) -> None:
    """Rows are numbered in each file; its number is its place among the inputs."""
    one = write_parquet(tmp_path / "b.parquet", {"text": ["b0", "b1"]})
    two = write_lines(tmp_path / "c.jsonl", [{"text": "c0"}])
    three = write_parquet(tmp_path / "a.parquet", {"text": ["a0"]})
    rows = read(one, two, three)
    assert rows.texts == ["b0", "b1", "c0", "a0"]
    assert rows.places == [(0, 0), (0, 1), (1, 0), (2, 0)]
    assert [str(one), str(two), str(three)] == rows.corpus.sources
    assert [one, two, three] == rows.corpus.paths
    assert sum(path.stat().st_size for path in (one, two, three)) == rows.corpus.num_bytes


def test_columns_are_chosen_in_each_file(tmp_path: Path) -> None:
    """Files of one corpus may name their columns differently."""
    one = write_parquet(tmp_path / "a.parquet", {"doc_id": ["a"], "body": ["one"]})
    two = write_lines(tmp_path / "b.jsonl", [{"id": "b", "text": "two"}])
    rows = read(one, two)
    assert (["one", "two"], pa.array(["a", "b"])) == (rows.texts, rows.output())


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7, 100])
def test_the_limit_counts_rows_over_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Rows as they come, skipped and failed ones too, wherever batches end."""
    monkeypatch.setattr(batching, "BATCH_ROWS", 2)
    one = write_lines(tmp_path / "a.jsonl", [{"text": "a"}, b"{", {"text": b"\xff".decode("latin1")}])
    two = write_parquet(tmp_path / "b.parquet", {"text": ["d", None, "f"]}, row_group_size=2)
    everything = read(one, two)
    assert len(everything.texts) == 6
    some = read(one, two, limit=limit)
    assert everything.outcomes[:limit] == some.outcomes
    assert everything.places[:limit] == some.places
    assert everything.column()[:limit] == some.column()


def test_a_limit_opens_no_more_files_than_it_needs(tmp_path: Path) -> None:
    """A damaged file behind the limit is not read."""
    one = write_lines(tmp_path / "a.jsonl", [{"text": "a"}])
    two = write_lines(tmp_path / "b.jsonl", [{"text": "b"}])
    corpus = open_paths(one, two, limit=1)
    two.unlink()
    assert [batch.texts for batch in corpus.batches()] == [["a"]]


def test_the_head_of_a_batch() -> None:
    """The first rows with their verdicts, flags and carried columns."""
    verdict = Verdict(status=RowStatus.SKIPPED, error_type=ErrorType.EMPTY_TEXT, error="x")
    batch = DocumentBatch(
        source=3,
        first_row=10,
        texts=["a", None, "c", None],
        carried=pa.record_batch({"doc_id": [1, 2, 3, 4]}),
        verdicts={1: verdict, 3: verdict},
        flags={0: ("x",), 2: ("y",)},
    )
    expected = DocumentBatch(
        source=3,
        first_row=10,
        texts=["a", None],
        carried=pa.record_batch({"doc_id": [1, 2]}),
        verdicts={1: verdict},
        flags={0: ("x",)},
    )
    assert expected == batch.head(2)


def test_a_corpus_without_files_is_empty(tmp_path: Path) -> None:
    """A folder of nothing but batchrun outputs gives an empty output with the usual columns."""
    corpus = open_corpus([], ColumnWishes(kept=("url",)), None)
    assert list(corpus.batches()) == []
    assert {"doc_id": pa.string(), "url": pa.string()} == corpus.output_types


JSONL = "jsonl"
STRINGS = ["doc_id"]

MIXTURES: dict[str, tuple[list[tuple[str, Any]], pa.Array, list[str]]] = {
    # files with their ids, what comes out, and what is said to differ
    "int32 and int64": (
        [("parquet", pa.array([1], pa.int32())), ("parquet", pa.array([2**60]))],
        pa.array(["1", str(2**60)]),
        STRINGS,
    ),
    "int and string": ([("parquet", pa.array([1])), ("parquet", pa.array(["x"]))], pa.array(["1", "x"]), STRINGS),
    "int and null": ([("parquet", pa.array([1])), ("parquet", pa.nulls(1))], pa.array([1, None]), []),
    "null and int": ([("parquet", pa.nulls(1)), ("parquet", pa.array([1]))], pa.array([None, 1]), []),
    "large_string and string": (
        [("parquet", pa.array(["a"], pa.large_string())), ("parquet", pa.array(["b"]))],
        pa.array(["a", "b"]),
        STRINGS,
    ),
    "dictionary and string": (
        [("parquet", pa.array(["a"]).dictionary_encode()), ("parquet", pa.array(["b"]))],
        pa.array(["a", "b"]),
        STRINGS,
    ),
    "timestamps and strings": (
        [("parquet", pa.array([1], pa.timestamp("ns", "UTC"))), ("parquet", pa.array(["x"]))],
        pa.array(["1970-01-01 00:00:00.000000001Z", "x"]),
        STRINGS,
    ),
    "UUIDs and strings": (
        [("parquet", pa.array([uuid.UUID(int=n).bytes for n in (5, 2**127)], pa.uuid())), ("parquet", pa.array(["x"]))],
        pa.array([str(uuid.UUID(int=5)), str(uuid.UUID(int=2**127)), "x"]),
        STRINGS,
    ),
    "bytes and strings": (
        [("parquet", pa.array([b"ab", b"\xff\x00"])), ("parquet", pa.array(["x"]))],
        pa.array(["ab", "ff00", "x"]),
        STRINGS,
    ),
    "structs and ints": (
        [("parquet", pa.array([{"a": 1}, None])), ("parquet", pa.array([7]))],
        pa.array(["{'a': 1}", None, "7"]),
        STRINGS,
    ),
    "ids and row numbers": ([(JSONL, ["x"]), (JSONL, [...])], pa.array(["x", "0"]), STRINGS),
    "int ids and row numbers": ([(JSONL, [7]), (JSONL, [..., ...])], pa.array(["7", "0", "1"]), STRINGS),
    "row numbers alone": ([(JSONL, [...]), ("parquet", None)], pa.array([0, 0]), []),
    "ids and an empty file": ([(JSONL, [7]), (JSONL, [])], pa.array([7]), []),
    "an empty file and ids": ([(JSONL, []), (JSONL, ["x"])], pa.array(["x"]), []),
    "empty files": ([(JSONL, []), (JSONL, [])], pa.array([], pa.string()), []),
    "Parquet strings and JSON numbers": (
        [("parquet", pa.array(["x"])), (JSONL, [7])],
        pa.array(["x", "7"]),
        [],
    ),
    "Parquet ints and JSON ids": ([("parquet", pa.array([1])), (JSONL, [7])], pa.array(["1", "7"]), STRINGS),
    "Parquet ints and JSON row numbers": ([("parquet", pa.array([5])), (JSONL, [...])], pa.array([5, 0]), []),
    "Parquet strings and JSON row numbers": (
        [("parquet", pa.array(["x"])), (JSONL, [..., ...])],
        pa.array(["x", "0", "1"]),
        STRINGS,
    ),
    "nulls and JSON ids": ([("parquet", pa.nulls(1)), (JSONL, ["x"])], pa.array([None, "x"]), []),
}  # fmt: skip


def write_ids(folder: Path, number: int, kind: str, ids: Any) -> Path:
    """A file with these ids; `...` is a row without, None a file without."""
    path = folder / f"{number}.{kind}"
    if kind == JSONL:
        return write_lines(path, [{"text": "t"} | ({} if value is ... else {"id": value}) for value in ids])
    return write_parquet(path, {"text": ["t"]} if ids is None else {"text": ["t"] * len(ids), "id": ids})


@pytest.mark.parametrize("name", MIXTURES)
def test_ids_of_differing_types(tmp_path: Path, name: str) -> None:
    """They come out as strings, each value by itself, and this is said; where they agree, as they are."""
    inputs, expected, differing = MIXTURES[name]
    rows = read(*(write_ids(tmp_path, number, *file) for number, file in enumerate(inputs)))
    assert (expected.type, expected) == (rows.output().type, rows.output())
    assert differing == rows.corpus.differing


def test_kept_columns_of_differing_types(tmp_path: Path) -> None:
    """As ids: strings, and said by name."""
    one = write_parquet(tmp_path / "a.parquet", {"text": ["t"], "n": [1], "s": ["x"]})
    two = write_parquet(tmp_path / "b.parquet", {"text": ["t"], "n": [1.5], "s": ["y"]})
    three = write_lines(tmp_path / "c.jsonl", [{"text": "t", "n": True}])
    rows = read(one, two, three, kept=("n", "s"))
    assert rows.corpus.differing == ["n"]
    assert (pa.array(["1", "1.5", "true"]), pa.array(["x", "y", None])) == (
        rows.output("n"),
        rows.output("s"),
    )


@pytest.mark.parametrize("name", ID_COLUMNS)
def test_any_value_can_become_a_string(tmp_path: Path, name: str) -> None:
    """Also one that Python has no type for; the same value gives the same string in any batch."""
    ids = pa.concat_arrays([ID_COLUMNS[name], ID_COLUMNS[name].slice(1, 1)])
    one = write_parquet(tmp_path / "a.parquet", {"text": ["t"] * 4, "id": ids}, row_group_size=1)
    other = pa.array([1.5]) if pa.types.is_string(ids.type) else pa.array(["other"])
    two = write_parquet(tmp_path / "b.parquet", {"text": ["t"], "id": other})
    column = read(one, two).column()
    assert name == "null" or pa.string() == column.type
    assert column[1] == column[3]
    assert not column[2].is_valid
    assert "null" in name or column[1].is_valid


def test_plain_values() -> None:
    """Python values where there are any, else what the value looks like printed."""
    column = pa.chunked_array([pa.array([1, None]), pa.array([2])])
    assert plain_values(column) == [1, None, 2]
    assert plain_values(column.combine_chunks()) == [1, None, 2]
    found = plain_values(not_utf8([b"a", b"\xff"]))
    assert found[0] == "a"
    assert "\ufffd" in found[1]


def sign(path: Path, limit: int | None = None, **wishes: Any) -> dict[str, Any]:
    return signature(find_files([str(path)], lambda _: False).files, ColumnWishes(**wishes), limit)


def test_the_signature_is_the_same_while_nothing_changes(tmp_path: Path) -> None:
    """Also after it was written to `plan.json` and read again."""
    path = write_lines(tmp_path / "a.jsonl", [{"text": "a"}])
    expected = sign(path, 5, text="text", kept=("a", "b"))
    assert expected == sign(path, 5, text="text", kept=("a", "b"))
    assert expected == msgspec.json.decode(msgspec.json.encode(expected))


def test_the_signature_changes_with_what_would_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Size, time, name, columns and limit each make another plan."""
    path = write_lines(tmp_path / "a.jsonl", [{"text": "a"}])
    os.utime(path, ns=(0, 10**18))
    signatures = [
        sign(path),
        sign(path, 1),
        sign(path, text="text"),
        sign(path, id="text"),
        sign(path, kept=("x",)),
        sign(path, kept=("x", "y")),
    ]
    os.utime(path, ns=(0, 10**18 + 1))
    signatures.append(sign(path))
    write_lines(path, [{"text": "longer"}])
    os.utime(path, ns=(0, 10**18))
    signatures.append(sign(path))
    signatures.append(sign(path.rename(tmp_path / "b.jsonl")))
    write_lines(path, [{"text": "longer"}])
    signatures.append(sign(tmp_path))
    assert len(signatures) == len({msgspec.json.encode(one) for one in signatures})
