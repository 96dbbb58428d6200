"""JSONL: each line parsed alone; whatever a line holds, it is one row, and never the end of the job."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchrun.corpus import batching, jsonl
from batchrun.corpus.corpus import ColumnWishes, open_corpus
from batchrun.corpus.inputs import find_files
from batchrun.errors import CorpusError
from batchrun.records import ErrorType, Flag, RowStatus
from tests.corpus.reading import open_paths, read, write_lines

SKIPPED = "skipped: empty_text"
INVALID = "failed: invalid_json"
NOT_TEXT = "failed: not_text"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"text":"a"}\n{"text":"b"}\n', ["a", "b"]),
        (b'{"text":"a"}\n{"text":"b"}', ["a", "b"]),
        (b'\xef\xbb\xbf{"text":"a"}\n', ["a"]),
        (b'{"text":"a"}\r\n{"text":"b"}\r\n', ["a", "b"]),
        (b'\n\n{"text":"a"}\n  \n\t{"text":"b"}  \n\r\n', ["a", "b"]),
        (b'\xef\xbb\xbf\r\n{"text":"a"}', ["a"]),
        (b'{"text":"a\\nb\\u2028c"}\n{"text":"\xe2\x80\xa8d"}\n', ["a\nb\u2028c", "\u2028d"]),
        (b'{"text":"a"}\n{"text":\n"b"}\n{"text":"c"}\n', ["a", INVALID, INVALID, "c"]),
        (b'{"text":"a"} {"text":"b"}\n', [INVALID]),
        (b'{"text":"a"}\n[{"text":"b"}]\nnull\n1\n"c"\ntrue\n', ["a", *[INVALID] * 5]),
        (b'{"text":1}\n{"text":1.5}\n{"text":true}\n{"text":[]}\n{"text":{}}\n', [NOT_TEXT] * 5),
        (b'{"text":NaN}\n{"text":Infinity}\n{"text":"nan"}\n', [NOT_TEXT, NOT_TEXT, "nan"]),
        (b'{"text":null}\n{"text":""}\n{"text":" \\n\\u3000"}\n{"text":"None"}\n', [*[SKIPPED] * 3, "None"]),
        (b'{"text":"a"}\n{"id":1}\n{}\n', ["a", SKIPPED, SKIPPED]),
        (b'{"text":"a","text":"b"}\n', ["b"]),
        (b'{"text":"' + b"x" * 5_000_000 + b'"}\n{"text":"b"}\n', ["x" * 5_000_000, "b"]),
        (b'{"text":"a","x":' + b"9" * 5_000 + b'}\n{"text":"b"}\n', [INVALID, "b"]),
        (b'{"text":"a"}\n' + b"[" * 100_000 + b'\n{"text":"b"}\n', ["a", INVALID, "b"]),
        (b'{"text":"a\x00b"}\n{"text":"\\u0000"}\n', [INVALID, "\0"]),
        (b"", []),
        (b"\n \n", []),
        (b"\xef\xbb\xbf", []),
        (b"broken\nlines\n", [INVALID, INVALID]),
    ],
    ids=range(23),
)
def test_every_line_is_one_row(tmp_path: Path, content: bytes, expected: list[str]) -> None:
    """Byte-order mark, CRLF, blank lines, broken lines, values of any type: rows in are rows out."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    assert expected == read(path).outcomes


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'{"text":"\\ud800"}', "\ufffd"),
        (b'{"text":"a\\udc00b\\ud83d"}', "a\ufffdb\ufffd"),
        (b'{"text":"\\ud83d\\ude00"}', "\U0001f600"),
        (b'{"text":"a\xffb"}', "a\ufffdb"),
        (b'{"text":"\xed\xa0\x80"}', "\ufffd\ufffd\ufffd"),
    ],
)
def test_what_is_no_unicode_is_replaced_and_flagged(tmp_path: Path, line: bytes, text: str) -> None:
    """A lone surrogate, or bytes that are not UTF-8, become U+FFFD; a pair of surrogates is a character."""
    rows = read(write_lines(tmp_path / "a.jsonl", [{"text": "é"}, line, {"text": "c"}]))
    assert ["é", text, "c"] == rows.texts
    assert ({1: (Flag.REPLACED_CHARACTERS,)} if "\ufffd" in text else {}) == rows.flags


@pytest.mark.parametrize(
    ("line", "error_type", "said"),
    [
        (b'{"text":', ErrorType.INVALID_JSON, ", line 3 is no JSON: Expecting value: line 1 column 9 (char 8)"),
        (b"[1]", ErrorType.INVALID_JSON, ", line 3 is a JSON array, not an object"),
        (b'{"text": 5}', ErrorType.NOT_TEXT, ", line 3: the text is of type int, not a string"),
    ],
)  # fmt: skip
def test_a_bad_row_says_where_it_is(tmp_path: Path, line: bytes, error_type: ErrorType, said: str) -> None:
    """By the number of its line in the file, blank lines counted, as an editor shows it."""
    path = write_lines(tmp_path / "a.jsonl", [{"text": "a"}, b"", line])
    verdict = read(path).verdicts[1]
    assert (RowStatus.FAILED, error_type, f"{path}{said}") == (
        verdict.status,
        verdict.error_type,
        verdict.error,
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2], pa.array([1, 2])),
        ([2**63 - 1, -(2**63)], pa.array([2**63 - 1, -(2**63)])),
        ([1, None], pa.array([1, None])),
        ([2**63, 1], pa.array([str(2**63), "1"])),
        ([10**30, 10**30 + 1], pa.array([str(10**30), str(10**30 + 1)])),
        ([1.5, 2.0, 1e300, 5e-324, 0.1], pa.array([1.5, 2.0, 1e300, 5e-324, 0.1])),
        ([float("inf"), -0.0], pa.array([float("inf"), -0.0])),
        ([True, False], pa.array([True, False])),
        (["a", "", "\x00", "é"], pa.array(["a", "", "\x00", "é"])),
        (["1", "2"], pa.array(["1", "2"])),
        (["2020-01-01"], pa.array(["2020-01-01"])),
        ([1, "1"], pa.array(["1", "1"])),
        ([1, 1.5], pa.array(["1", "1.5"])),
        ([True, 1], pa.array(["true", "1"])),
        ([None, None], pa.array([None, None], pa.string())),
        ([{"b": 1, "a": "é"}, [1, "x"]], pa.array(['{"b": 1, "a": "é"}', '[1, "x"]'])),
        ([{"a": "\ud800"}, "\ud800"], pa.array(['{"a": "\ufffd"}', "\ufffd"])),
    ],
    ids=range(17),
)
def test_ids_come_out_as_they_went_in(tmp_path: Path, values: list[Any], expected: pa.Array) -> None:
    """Numbers and booleans in their own type where all are alike; else strings, as JSON writes them."""
    path = write_lines(tmp_path / "a.jsonl", [{"id": value, "text": "t", "kept": value} for value in values])
    rows = read(path, kept=("kept",))
    assert (expected.type, expected) == (rows.output().type, rows.output())
    assert expected == rows.output("kept")


def test_ids_that_differ_late_come_out_as_strings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The type is settled when all was read: a string in the last batch makes the first one strings."""
    monkeypatch.setattr(batching, "BATCH_ROWS", 2)
    rows = [{"id": value, "text": "t"} for value in (1, 2, 3, "x")]
    assert pa.array(["1", "2", "3", "x"]) == read(write_lines(tmp_path / "a.jsonl", rows)).output()


def test_broken_rows_have_no_id(tmp_path: Path) -> None:
    """A line that can not be read has no id, and the others keep theirs."""
    path = write_lines(tmp_path / "a.jsonl", [{"id": 7, "text": "a"}, b"{", {"text": "b"}])
    assert pa.array([7, None, None]) == read(path).output()


def test_row_numbers_are_ids_where_there_are_none(tmp_path: Path) -> None:
    """Counted without blank lines, as rows are."""
    path = write_lines(tmp_path / "a.jsonl", [{"text": "a"}, b"", b"{", {"text": "b"}])
    assert pa.array([0, 1, 2]) == read(path).output()


def test_columns_are_named_by_option(tmp_path: Path) -> None:
    """Text, id and kept columns; a row without one has null there."""
    path = write_lines(tmp_path / "a.jsonl", [{"t": "a", "key": 1, "url": "u"}, {"t": "b", "key": 2}])
    rows = read(path, text="t", id="key", kept=("url",))
    assert (["a", "b"], pa.array([1, 2])) == (rows.texts, rows.output())
    assert pa.array(["u", None]) == rows.output("url")


HEAD = [{"other": n} for n in range(150)]
"""More rows than are looked at where nothing is missed."""
BODY = [{"body": "a", "key": 7, "url": "u"}]


@pytest.mark.parametrize(
    ("files", "wishes"),
    [
        ([HEAD + BODY], {}),
        ([HEAD + BODY], {"text": "body", "id": "key", "kept": ("url",)}),
        ([BODY, HEAD + BODY], {"text": "body", "id": "key", "kept": ("url",)}),
        ([HEAD + BODY, BODY], {"id": "key", "kept": ("url",)}),
    ],
)
def test_columns_are_looked_for_behind_the_first_rows(
    tmp_path: Path, files: list[list[Any]], wishes: dict[str, Any]
) -> None:
    """Rows without the key are skipped, as ever; those with it are read."""
    paths = [write_lines(tmp_path / f"{n}.jsonl", rows) for n, rows in enumerate(files)]
    rows = read(*paths, **wishes)
    present = [row for some in files for row in some]
    assert [row.get("body", SKIPPED) for row in present] == rows.outcomes
    if "id" in wishes:
        assert [row.get("key") for row in present] == rows.output().to_pylist()
        assert [row.get("url") for row in present] == rows.output("url").to_pylist()


def test_columns_of_the_prompt_are_looked_for_behind_the_first_rows(tmp_path: Path) -> None:
    """In each file whose rows may have them, whichever has them first."""
    paths = [write_lines(tmp_path / f"{n}.jsonl", rows) for n, rows in enumerate([BODY + HEAD, HEAD + BODY])]
    found = find_files([str(path) for path in paths], lambda _: False).files
    corpus = open_corpus(found, ColumnWishes(text="body"), None, ["url", "never"])
    assert ["url"] == list(corpus.variables)
    found_words = [batch.variables for batch in corpus.batches()]
    words = [word for batch in found_words if batch is not None for word in batch["url"].to_pylist()]
    assert ["u", *[None] * 300, "u"] == words


def test_a_large_file_may_have_its_first_texts_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another file has the column; a name that no file has is an error all the same."""
    monkeypatch.setattr(jsonl, "LOOK_BYTES", 100)
    late = write_lines(tmp_path / "a.jsonl", HEAD + BODY)
    early = write_lines(tmp_path / "b.jsonl", BODY)
    assert [*[SKIPPED] * 150, "a", "a"] == read(late, early, text="body").outcomes
    with pytest.raises(CorpusError, match="has no column 'body'"):
        read(late, text="body")


@pytest.mark.parametrize(
    ("files", "wishes", "reason", "hint"),
    [
        ([HEAD + BODY], {"text": "bdy"}, "{0} has no column 'bdy'; it has other (number), body (string), ", "--text-column body"),
        ([HEAD + BODY], {"id": "keys"}, "{0} has no column 'keys'; it has other (number), ", "Did you mean --id-column key?"),
        ([HEAD + BODY], {"kept": ("urls",)}, "{0} has no column 'urls'; it has other (number), ", "Did you mean --keep-columns url?"),
        ([BODY, BODY], {"kept": ("url", "urls")}, "the corpus has no column 'urls'; it has body (string), ", "Did you mean --keep-columns url?"),
    ],
)  # fmt: skip
def test_a_name_that_no_row_has_is_an_error(
    tmp_path: Path, files: list[list[Any]], wishes: dict[str, Any], reason: str, hint: str
) -> None:
    """It lists what there is and proposes the nearest; a column of nulls would be noticed in the morning."""
    paths = [write_lines(tmp_path / f"{n}.jsonl", rows) for n, rows in enumerate(files)]
    with pytest.raises(CorpusError) as caught:
        open_paths(*paths, **wishes)
    assert caught.value.reason.startswith(reason.format(*paths)), caught.value.reason
    assert hint in caught.value.hint


def test_columns_are_found_in_the_first_rows(tmp_path: Path) -> None:
    """A first row that is broken or lacks a key does not hide the column."""
    path = write_lines(tmp_path / "a.jsonl", [b"{", {"other": 1}, {"body": "a", "id": 1}])
    assert read(path).outcomes == [INVALID, SKIPPED, "a"]


@pytest.mark.parametrize("limits", [{"BATCH_ROWS": 3}, {"BATCH_BYTES": 40}])
def test_batches_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]) -> None:
    """In rows and in bytes, and they follow each other without a gap."""
    for name, value in limits.items():
        monkeypatch.setattr(batching, name, value)
    texts = [f"text {row}" for row in range(10)]
    rows = read(write_lines(tmp_path / "a.jsonl", [{"text": text} for text in texts]))
    assert texts == rows.texts
    assert [(0, row) for row in range(10)] == rows.places
    assert max(len(batch) for batch in rows.batches) == 3


def test_a_disk_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job ends there, since the rows behind it are not known."""
    path = write_lines(tmp_path / "a.jsonl", [{"text": "a"}])
    corpus = open_paths(path)

    def failing(*_: object) -> object:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "open", failing)
    with pytest.raises(CorpusError) as caught:
        list(corpus.batches())
    assert f"{path} can not be read: Input/output error\nCheck the file and its disk." == str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
any_lines = st.one_of(
    st.binary(max_size=12),
    json_values.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries({"text": json_values, "id": json_values}).map(
        lambda value: json.dumps(value).encode()
    ),
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(any_lines, max_size=8))
def test_any_line_is_a_text_or_a_verdict(tmp_path: Path, lines: list[bytes]) -> None:
    """Nothing that a line holds raises; every line that is not blank is one row with a text or a reason."""
    path = tmp_path / "a.jsonl"
    content = b'{"text": "first", "id": 1}\n' + b"\n".join(lines)
    path.write_bytes(content)
    rows = read(path, kept=("text",))
    assert sum(1 for line in content.split(b"\n") if line.strip()) == len(rows.texts)
    assert all(text is None or text.encode().strip() for text in rows.texts)
    assert len(rows.texts) == len(rows.output()) == len(rows.output("text"))
