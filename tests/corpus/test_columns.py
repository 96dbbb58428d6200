"""Which column is the text and which the id: named, or by convention; never by a guess."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from batchrun.corpus.columns import Columns, choose
from batchrun.documents import OUTPUT_COLUMNS
from batchrun.errors import CorpusError, ExitCode
from batchrun.store import publish
from tests.corpus.reading import open_paths, write_lines, write_parquet


@pytest.mark.parametrize(
    ("known", "text", "id_column", "expected"),
    [
        (["text"], None, None, (None, "text")),
        (["id", "body"], None, None, ("id", "body")),
        (["doc_id", "content"], None, None, ("doc_id", "content")),
        (["id", "text", "title"], "title", None, ("id", "title")),
        (["id", "text", "url"], None, "url", ("url", "text")),
        (["text", "body"], "body", None, (None, "body")),
        (["id", "doc_id", "text"], None, "doc_id", ("doc_id", "text")),
        (["text"], None, "text", ("text", "text")),
        (["id", "doc_id"], "id", None, ("doc_id", "id")),
        (["Text", "text"], None, None, (None, "text")),
    ],
)
def test_columns_are_named_or_conventional(
    known: list[str], text: str | None, id_column: str | None, expected: tuple[str | None, str]
) -> None:
    """`text`, `body` or `content`; `id` or `doc_id`, else row numbers; a name given comes first."""
    chosen = choose("corpus", dict.fromkeys(known, "string"), text=text, id=id_column)
    assert expected == (chosen.id, chosen.text)


KNOWN = {"key": "int64", "article": "large_string", "title": "string"}


ALL_OF_KNOWN = "key (int64), article (large_string), title (string)"
NAME_IT = "Name the text column: --text-column {}, or [columns] text in the job spec."


@pytest.mark.parametrize(
    ("known", "wishes", "reason", "hint"),
    [
        (KNOWN, {}, f"c has no text column (text, body, content); it has {ALL_OF_KNOWN}", NAME_IT.format("article")),
        (KNOWN, {"text": "artcle"}, f"c has no column 'artcle'; it has {ALL_OF_KNOWN}", NAME_IT.format("article")),
        (KNOWN, {"text": "titel"}, f"c has no column 'titel'; it has {ALL_OF_KNOWN}", NAME_IT.format("title")),
        (KNOWN, {"id": "id"}, f"c has no column 'id'; it has {ALL_OF_KNOWN}", "Name one that it has with --id-column."),
        (KNOWN, {"id": "kye"}, f"c has no column 'kye'; it has {ALL_OF_KNOWN}", "Did you mean --id-column key?"),
        (KNOWN, {"kept": ["url"]}, f"c has no column 'url'; it has {ALL_OF_KNOWN}", "Name one that it has with --keep-columns."),
        (KNOWN, {"kept": ["titles"]}, f"c has no column 'titles'; it has {ALL_OF_KNOWN}", "Did you mean --keep-columns title?"),
        (
            {"text": "string", "body": "string"},
            {},
            "c has several text columns, text and body; all its columns: text (string), body (string)",
            "Name one: --text-column text, or [columns] text in the job spec.",
        ),
        (
            {"id": "int64", "doc_id": "string", "text": "string"},
            {},
            "c has several id columns, id and doc_id; all its columns: id (int64), doc_id (string), text (string)",
            "Name one: --id-column id, or [columns] id in the job spec.",
        ),
        ({"x": "int64"}, {}, "c has no text column (text, body, content); it has x (int64)", NAME_IT.format("NAME")),
        ({}, {}, "c has no text column (text, body, content); it has no columns", NAME_IT.format("NAME")),
    ],
)  # fmt: skip
def test_missing_and_ambiguous_columns_are_listed(
    known: dict[str, str], wishes: dict[str, Any], reason: str, hint: str
) -> None:
    """The message lists all columns with their types and proposes one."""
    with pytest.raises(CorpusError) as caught:
        choose("c", known, **{"text": None, "id": None} | wishes)
    assert (reason, hint) == (caught.value.reason, caught.value.hint)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (Columns(id="key", text="body"), "text column 'body', id column 'key'"),
        (Columns(id=None, text="body"), "text column 'body', row numbers as ids"),
    ],
)
def test_the_choice_can_be_told(columns: Columns, expected: str) -> None:
    """A person sees what is read before it is read."""
    assert expected == str(columns)


def test_the_types_of_a_file_are_in_the_message(tmp_path: Path) -> None:
    """Parquet types as Arrow writes them, JSON types as JSON has them; the file by its whole path."""
    parquet = write_parquet(tmp_path / "a.parquet", {"n": pa.array([1.5]), "s": pa.array([{"x": 1}])})
    lines = write_lines(tmp_path / "a.jsonl", [{"n": None, "o": {}}, {"n": 1, "l": [], "b": True, "s": "x"}])
    with pytest.raises(CorpusError) as caught:
        open_paths(parquet)
    assert f"{parquet} has no text column (text, body, content); it has n (double), s (struct<x: int64>)" == (
        caught.value.reason
    )
    with pytest.raises(CorpusError) as caught:
        open_paths(lines)
    assert (
        f"{lines} has no text column (text, body, content); "
        "it has n (number), o (object), l (array), b (boolean), s (string)"
    ) == caught.value.reason
    assert ExitCode.CORPUS_UNUSABLE == caught.value.exit_code == 65


def test_a_key_that_is_no_unicode_can_be_shown(tmp_path: Path) -> None:
    """A lone surrogate in a key does not break the message about it."""
    lines = write_lines(tmp_path / "a.jsonl", [b'{"te\\ud800xt": "a"}'])
    with pytest.raises(CorpusError) as caught:
        open_paths(lines)
    assert "it has te\ufffdxt (string)" in str(caught.value)
    assert str(caught.value).encode().decode() == str(caught.value)


@pytest.mark.parametrize("name", OUTPUT_COLUMNS)
def test_a_kept_column_does_not_take_the_place_of_ours(tmp_path: Path, name: str) -> None:
    """A corpus column named `summary` would otherwise stand where the summaries belong."""
    path = write_parquet(tmp_path / "a.parquet", {"id": ["a"], "text": ["t"]} | {name: ["x"]})
    with pytest.raises(CorpusError) as caught:
        open_paths(path, id="id", kept=(name,))
    assert (
        f"column {name!r} can not be kept: the output has a column of that name\n"
        "Leave it out of --keep-columns, or rename it in the corpus."
    ) == str(caught.value)


def test_the_columns_of_the_output_are_those_published() -> None:
    """What is refused is what the output really has."""
    schema = publish._schema(
        publish.Publication(
            plan=None,
            carried=None,
            carried_types={"doc_id": pa.int64(), "kept": pa.string()},
            sources=[],
            job_id="",
            seed=0,
            metadata={},
        )
    )
    assert [*OUTPUT_COLUMNS, "kept"] == schema.names


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_a_column_is_kept_once(tmp_path: Path, suffix: str) -> None:
    """Naming it twice is a slip, said before anything is read."""
    path = tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        write_parquet(path, {"text": ["t"], "url": ["u"]})
    else:
        write_lines(path, [{"text": "t", "url": "u"}])
    with pytest.raises(CorpusError, match="column 'url' is to be kept twice"):
        open_paths(path, kept=("url", "url"))
