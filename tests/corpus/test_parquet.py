"""Parquet: every kind of text column, streamed, with a verdict where a row has no text."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchrun.corpus import batching
from batchrun.errors import CorpusError, ExitCode
from batchrun.records import ErrorType, Flag, RowStatus
from tests.corpus.reading import open_paths, read, write_parquet
from tests.fixtures import not_utf8

TEXTS = ["one", None, "", " \t\n\u3000", "zwei é 漢字 😀", "one"]
OUTCOMES = ["one", *["skipped: empty_text"] * 3, "zwei é 漢字 😀", "one"]

TEXT_COLUMNS = {
    "string": pa.array(TEXTS),
    "large_string": pa.array(TEXTS, pa.large_string()),
    "string_view": pa.array(TEXTS, pa.string_view()),
    "binary": pa.array(TEXTS).cast(pa.binary()),
    "large_binary": pa.array(TEXTS).cast(pa.large_binary()),
    "binary_view": pa.array(TEXTS).cast(pa.binary_view()),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
    "dictionary of few": pa.array(TEXTS, pa.dictionary(pa.int8(), pa.large_string())),
}


@pytest.mark.parametrize("kind", TEXT_COLUMNS)
def test_every_kind_of_text_is_read(tmp_path: Path, kind: str) -> None:
    """Texts come as they are; null, empty and blank ones are skipped, whatever column holds them."""
    rows = read(write_parquet(tmp_path / "a.parquet", {"text": TEXT_COLUMNS[kind]}))
    assert rows.outcomes == OUTCOMES
    assert rows.flags == {}


def test_a_skipped_row_says_why(tmp_path: Path) -> None:
    """Null is no text "None"."""
    [verdict] = read(write_parquet(tmp_path / "a.parquet", {"text": [None]})).verdicts.values()
    assert (verdict.status, verdict.error_type) == (RowStatus.SKIPPED, ErrorType.EMPTY_TEXT)
    assert verdict.error == "the text is empty, blank or null"


@pytest.mark.parametrize(
    "column",
    [pa.nulls(3), pa.nulls(3, pa.string()), pa.array([None] * 3, pa.dictionary(pa.int32(), pa.string()))],
    ids=str,
)
def test_a_column_of_nulls_is_skipped(tmp_path: Path, column: pa.Array) -> None:
    """A day without texts has rows all the same; its column may have no type at all."""
    assert (
        read(write_parquet(tmp_path / "a.parquet", {"text": column})).outcomes == ["skipped: empty_text"] * 3
    )


@pytest.mark.parametrize(
    "column",
    [
        pa.array([{"x": "a"}]),
        pa.array([["a"]]),
        pa.array([1]),
        pa.array([1.5]),
        pa.array([True]),
        pa.array([1]).dictionary_encode(),
        pa.array([b"0123456789abcdef"], pa.uuid()),
        pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())),
    ],
    ids=lambda column: str(column.type),
)
def test_a_column_that_holds_no_text_is_refused(tmp_path: Path, column: pa.Array) -> None:
    """Before anything is planned, with the column's type."""
    path = write_parquet(tmp_path / "a.parquet", {"text": column})
    with pytest.raises(CorpusError) as caught:
        open_paths(path)
    kind = pq.read_schema(path).field("text").type
    assert (
        f"{path}: text column 'text' is {kind}, not a string\n"
        "Name a column of strings with --text-column, or cast it."
    ) == str(caught.value)
    assert ExitCode.CORPUS_UNUSABLE == caught.value.exit_code == 65


@pytest.mark.parametrize("kind", [None, pa.binary(), pa.large_string()], ids=str)
def test_bytes_that_are_not_utf_8_are_replaced_and_flagged(tmp_path: Path, kind: pa.DataType | None) -> None:
    """Only the rows that hold them; their neighbours in the batch are as they were."""
    column = not_utf8([b"good", b"a\xffb", b"", b"\xed\xa0\x80", "é".encode(), b"\xe6\xbc"], kind)
    rows = read(write_parquet(tmp_path / "a.parquet", {"text": column}))
    assert rows.outcomes == ["good", "a\ufffdb", "skipped: empty_text", "\ufffd\ufffd\ufffd", "é", "\ufffd"]
    assert dict.fromkeys([1, 3, 5], (Flag.REPLACED_CHARACTERS,)) == rows.flags


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(
        st.one_of(st.none(), st.binary(max_size=6), st.text(max_size=4).map(str.encode)), max_size=8
    )
)
def test_any_bytes_are_a_text_or_a_verdict(tmp_path: Path, values: list[bytes | None]) -> None:
    """Rows in are rows out: a text where the bytes hold one, by Python's own rule of replacement."""
    is_valid = pa.array([value is not None for value in values], pa.bool_())
    column = pc.if_else(is_valid, not_utf8([value or b"" for value in values]), pa.scalar(None, pa.string()))
    rows = read(write_parquet(tmp_path / "a.parquet", {"text": column}))
    decoded = [(value or b"").decode(errors="replace") for value in values]
    assert [text if text.strip() else None for text in decoded] == rows.texts


@pytest.mark.parametrize("row_group_size", [1, 7, 50, 1000])
def test_rows_are_numbered_whatever_the_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row_group_size: int
) -> None:
    """Batches are bounded and follow each other without a gap; the row number is the id."""
    monkeypatch.setattr(batching, "BATCH_ROWS", 20)
    texts = [f"text {row}" for row in range(50)]
    rows = read(write_parquet(tmp_path / "a.parquet", {"text": texts}, row_group_size=row_group_size))
    assert texts == rows.texts
    assert [(0, row) for row in range(50)] == rows.places
    assert pa.array(range(50)) == rows.column()
    assert max(len(batch) for batch in rows.batches) <= 20


def test_long_texts_come_in_smaller_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the file's own sizes, so that a batch holds about BATCH_BYTES of text."""
    monkeypatch.setattr(batching, "BATCH_BYTES", 100_000)
    texts = [f"{row} " * 2_000 for row in range(100)]
    rows = read(write_parquet(tmp_path / "a.parquet", {"text": texts}, use_dictionary=False))
    assert texts == rows.texts
    assert max(len(batch) for batch in rows.batches) <= 20


EMPTY_FILES: dict[str, Any] = {
    "no rows": {"text": pa.array([], pa.string()), "id": pa.array([], pa.int32())},
    "no rows of a dictionary": {
        "text": pa.array([], pa.dictionary(pa.int32(), pa.string())),
        "id": pa.array([], pa.int32()),
    },
}


@pytest.mark.parametrize("name", EMPTY_FILES)
def test_a_file_without_rows_is_fine(tmp_path: Path, name: str) -> None:
    """Nothing to do; the id keeps its type."""
    rows = read(write_parquet(tmp_path / "a.parquet", EMPTY_FILES[name]))
    assert rows.texts == []
    assert {"doc_id": pa.int32()} == rows.corpus.output_types


def test_a_file_without_row_groups_is_fine(tmp_path: Path) -> None:
    """As a writer leaves that was closed before its first row."""
    path = tmp_path / "a.parquet"
    pq.ParquetWriter(path, pa.schema({"id": pa.int64(), "text": pa.string()})).close()
    assert pq.ParquetFile(path).num_row_groups == 0
    assert read(path).texts == []


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty (0 bytes)\n"),
        (b'{"text": "a"}\n', "is not readable as Parquet: Parquet magic bytes not found in footer"),
        (b"PAR1", "is not readable as Parquet: Parquet file size is 4 bytes"),
    ],
)
def test_a_file_that_is_no_parquet_is_named(tmp_path: Path, content: bytes, what: str) -> None:
    """Whatever its name promises."""
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    with pytest.raises(CorpusError) as caught:
        open_paths(path)
    assert str(caught.value).startswith(f"{path} {what}")
    assert caught.value.hint == "Write it again, or take it out of the corpus."


def test_a_file_cut_off_is_named(tmp_path: Path) -> None:
    """A copy that did not end has no footer."""
    path = write_parquet(tmp_path / "a.parquet", {"text": TEXTS})
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorpusError, match=r"a\.parquet is not readable as Parquet"):
        open_paths(path)


def test_damage_is_named_with_the_rows_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read before is good; the message says how far that goes."""
    monkeypatch.setattr(batching, "BATCH_ROWS", 16)
    texts = [f"text {row}" for row in range(32)]
    path = write_parquet(tmp_path / "a.parquet", {"text": texts}, row_group_size=16, compression="zstd")
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(0)
    data = bytearray(path.read_bytes())
    start = chunk.dictionary_page_offset
    data[start : start + chunk.total_compressed_size] = b"\xa5" * chunk.total_compressed_size
    path.write_bytes(data)
    batches = open_paths(path).batches()
    assert texts[:16] == next(batches).texts
    with pytest.raises(CorpusError) as caught:
        next(batches)
    assert caught.value.reason.startswith(f"{path} is damaged after row 16: ")
    assert "\n" not in caught.value.reason
    assert caught.value.hint == "Write it again, or take it out of the corpus."


@pytest.mark.parametrize("name", ["text", "id", "url"])
def test_two_columns_of_one_name_are_refused(tmp_path: Path, name: str) -> None:
    """Parquet allows them, and which is meant can not be said."""
    table = pa.Table.from_arrays([["a"], ["b"], ["c"], ["d"]], names=["text", "id", "url", name])
    path = write_parquet(tmp_path / "a.parquet", table)
    with pytest.raises(CorpusError) as caught:
        open_paths(path, kept=("url",))
    assert f"{path} has several columns {name!r}\nRename all but one of them." == str(caught.value)


def test_two_other_columns_of_one_name_do_no_harm(tmp_path: Path) -> None:
    """Nobody reads them."""
    table = pa.Table.from_arrays([["a"], ["b"], ["c"]], names=["text", "x", "x"])
    assert read(write_parquet(tmp_path / "a.parquet", table)).texts == ["a"]


def test_dots_in_names_are_no_paths(tmp_path: Path) -> None:
    """A column `my.text` beside a struct `my` with a field `text`."""
    columns = {"my": [{"text": "inner"}], "my.text": ["outer"], "my.id": [7]}
    rows = read(write_parquet(tmp_path / "a.parquet", columns), text="my.text", id="my.id")
    assert (["outer"], pa.array([7])) == (rows.texts, rows.column())


def test_kept_columns_are_carried_as_they_are(tmp_path: Path) -> None:
    """Of any type, the text and the id among them, in the order asked for."""
    columns = {
        "id": pa.array([1, 2], pa.uint8()),
        "text": pa.array(["a", None]),
        "tags": pa.array([["x"], None]),
        "at": pa.array([1, 2], pa.timestamp("ns", "UTC")),
    }
    rows = read(write_parquet(tmp_path / "a.parquet", columns), kept=("at", "tags", "text", "id"))
    assert list(rows.corpus.output_types) == ["doc_id", "at", "tags", "text", "id"]
    assert [columns[name] for name in ("at", "tags", "text", "id")] == [
        rows.column(name) for name in ("at", "tags", "text", "id")
    ]
