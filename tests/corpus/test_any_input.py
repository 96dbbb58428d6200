"""Random tables, bytes and texts: rows in are rows out, and nothing but a CorpusError ends the reading."""

import csv
import gzip
import io
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun.errors import CorpusError
from tests.corpus.reading import Rows, read
from tests.fixtures import not_utf8

FEW = settings(max_examples=40, deadline=None)

NAMES = ["a.parquet", "a.arrow", "a.jsonl", "a.csv", "a.tsv", "a.txt", "a.html"]
SMALL = [name for name in NAMES if not name.endswith(("parquet", "arrow"))]

any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
any_bytes = st.one_of(
    st.binary(max_size=40),
    any_text.map(str.encode),
    st.lists(st.sampled_from([b"text", b'"', b",", b"\n", b"\r", b"\t", b"{", b"}", b":", b"<p", b">", b"\0", b"\xff", b"1", b"<meta charset="]), max_size=30).map(b"".join),
)  # fmt: skip
text_kinds = st.sampled_from(
    [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int8(), pa.string())]
)


def read_file(name: str, data: bytes, **wishes: Any) -> Rows:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        return read(folder, **wishes)


@FEW
@given(name=st.sampled_from(NAMES), data=any_bytes)
def test_any_bytes_under_any_name(name: str, data: bytes) -> None:
    """A file that is what it says, or not."""
    with suppress(CorpusError):
        read_file(name, data)


@FEW
@given(name=st.sampled_from(SMALL), data=any_bytes)
def test_packed_is_read_as_unpacked(name: str, data: bytes) -> None:
    """The same rows, or the same refusal, but for the file's name."""

    def outcome(name: str, data: bytes) -> Any:
        try:
            rows = read_file(name, data)
        except CorpusError:
            return None
        return rows.texts, rows.flags, list(rows.verdicts)

    assert outcome(name, data) == outcome(f"{name}.gz", gzip.compress(data))


@FEW
@given(
    texts=st.lists(st.none() | any_text, max_size=20),
    kind=text_kinds,
    row_group_size=st.integers(1, 30),
    ids=st.sampled_from([pa.int64(), pa.string(), pa.null(), pa.float32()]),
)
def test_any_table(texts: list[str | None], kind: pa.DataType, row_group_size: int, ids: pa.DataType) -> None:
    """Parquet and both forms of Arrow give the same rows."""
    values = range(len(texts))
    column = pa.array(texts, pa.string())
    table = pa.table(
        {
            "text": pa.array(texts, kind) if pa.types.is_dictionary(kind) else column.cast(kind),
            "id": pa.nulls(len(texts)) if ids == pa.null() else pa.array(values, pa.int64()).cast(ids),
        }
    )
    expected = [text if text and text.strip() else None for text in texts]
    for name, make in (("a.parquet", None), ("a.arrow", pa.ipc.new_stream), ("a.feather", pa.ipc.new_file)):
        sink = io.BytesIO()
        if make is None:
            pq.write_table(table, sink, row_group_size=row_group_size)
        else:
            with make(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=row_group_size)
        rows = read_file(name, sink.getvalue())
        assert expected == rows.texts
        assert table["id"].combine_chunks().cast(rows.column().type) == rows.column()


@FEW
@given(values=st.lists(st.binary(max_size=6), max_size=12), stream=st.booleans())
def test_any_bytes_in_a_column_of_strings(values: list[bytes], stream: bool) -> None:
    """Decoded by Python's own rule of replacement, and flagged where it replaced."""
    table = pa.table({"text": not_utf8(values)})
    sink = io.BytesIO()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, table.schema) as writer:
        writer.write_table(table)
    rows = read_file("a.arrow", sink.getvalue())
    decoded = [value.decode(errors="replace") for value in values]
    assert [text if text.strip() else None for text in decoded] == rows.texts


@FEW
@given(rows=st.lists(st.tuples(any_text, any_text), max_size=10), tabs=st.booleans())
def test_what_is_written_as_csv_is_read(rows: list[tuple[str, str]], tabs: bool) -> None:
    """Whatever a field holds."""
    sink = io.StringIO()
    writer = csv.writer(sink, delimiter="\t" if tabs else ",", quoting=csv.QUOTE_ALL)
    writer.writerows([("id", "text"), *rows])
    found = read_file("a.tsv" if tabs else "a.csv", sink.getvalue().encode())
    assert [text if text.strip() else None for _, text in rows] == found.texts
    assert [key for key, _ in rows] == found.output().to_pylist()


@FEW
@given(data=any_bytes, flips=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=4))
def test_damage_anywhere_in_an_arrow_file(data: bytes, flips: list[tuple[int, int]]) -> None:
    """A file is mapped, so that a wrong offset would lead out of it: it is found first."""
    table = pa.table({"text": pa.array([data.decode(errors="replace"), "b"] * 9), "id": range(18)})
    for make in (pa.ipc.new_stream, pa.ipc.new_file):
        sink = io.BytesIO()
        with make(sink, table.schema) as writer:
            writer.write_table(table)
        damaged = bytearray(sink.getvalue())
        for place, value in flips:
            damaged[place % len(damaged)] = value
        with suppress(CorpusError):
            read_file("a.arrow", bytes(damaged))
