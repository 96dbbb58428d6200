"""Inputs as given become files in a fixed order; what is no corpus is refused by name."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from batchrun.corpus.files import CorpusFile
from batchrun.corpus.formats import Format, known_endings
from batchrun.corpus.inputs import find_files
from batchrun.errors import BatchrunError, CorpusError, CorpusNotFoundError, ExitCode


def nothing(_: Path) -> bool:
    return False


def make(folder: Path, *names: str, content: bytes = b"") -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def found(folder: Path, *given: str, is_output: Callable[[Path], bool] = nothing) -> list[str]:
    """The sources found below `folder`, relative to it."""
    files = find_files([str(folder / name) for name in given], is_output).files
    return [os.path.relpath(file.source, folder) for file in files]


def refusal(kind: type[BatchrunError], *given: str) -> BatchrunError:
    with pytest.raises(kind) as caught:
        find_files(list(given), nothing)
    return caught.value


TREE = (
    "b.parquet",
    "a.jsonl",
    "B/2.pq",
    "B/10.ndjson",
    "B/deep/x.PARQUET",
    ".hidden.parquet",
    ".hidden/x.parquet",
    "_SUCCESS",
    "_temporary/x.parquet",
    "_metadata.parquet",
    "notes.txt",
    "empty/notes.md",
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([""], ["B/10.ndjson", "B/2.pq", "B/deep/x.PARQUET", "a.jsonl", "b.parquet"]),
        (["B"], ["B/10.ndjson", "B/2.pq", "B/deep/x.PARQUET"]),
        (["b.parquet", "a.jsonl"], ["b.parquet", "a.jsonl"]),
        (["*.parquet"], ["b.parquet"]),
        (["_m*.parquet"], ["_metadata.parquet"]),
        (["*"], ["B/10.ndjson", "B/2.pq", "B/deep/x.PARQUET", "a.jsonl", "b.parquet"]),
        (["?.*"], ["a.jsonl", "b.parquet"]),
        (["empty"], ["empty/notes.md"]),
        (["B/**/*.[pP]*"], ["B/2.pq", "B/deep/x.PARQUET"]),
        (["a.jsonl", "B"], ["a.jsonl", "B/10.ndjson", "B/2.pq", "B/deep/x.PARQUET"]),
        (["_metadata.parquet"], ["_metadata.parquet"]),
    ],
)
def test_files_in_a_fixed_order(tmp_path: Path, given: list[str], expected: list[str]) -> None:
    """Inputs in the order given, each in name order; folders pass over hidden and marker files."""
    assert expected == found(make(tmp_path, *TREE), *given)


def test_a_file_is_known_by_path_size_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source is the path as given; the path is absolute."""
    make(tmp_path, "a.jsonl", content=b"{}")
    os.utime(tmp_path / "a.jsonl", ns=(5, 1234567890123456789))
    monkeypatch.chdir(tmp_path)
    expected = CorpusFile(
        source="./a.jsonl",
        path=tmp_path / "a.jsonl",
        format=Format.JSONL,
        size=2,
        mtime_ns=1234567890123456789,
        name="./a.jsonl",
    )
    assert [expected] == find_files(["./a.jsonl"], nothing).files


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("x.parquet", b'{"text": 1}', Format.PARQUET),
        ("x.pq", b"", Format.PARQUET),
        ("x.JSONL", b"PAR1", Format.JSONL),
        ("x.ndjson", b"", Format.JSONL),
        ("x.json", b'{"text": "a"}', Format.JSONL),
        ("x", b'\xef\xbb\xbf\n  {"text": "a"}', Format.JSONL),
        ("x", b"PAR1 and so on", Format.PARQUET),
        ("x.jsonl.d", b"PAR1", Format.PARQUET),
    ],
)
def test_the_ending_decides_and_then_the_content(
    tmp_path: Path, name: str, content: bytes, expected: Format
) -> None:
    """A known ending is believed; without one, the file's first bytes say what it is."""
    make(tmp_path, name, content=content)
    assert [expected] == [file.format for file in find_files([str(tmp_path / name)], nothing).files]


def test_folders_and_globs_pass_over_outputs(tmp_path: Path) -> None:
    """Last night's output in tonight's input is no input, unless it is given by its name."""
    make(tmp_path, "a.parquet", "a.summaries.parquet")

    def is_output(path: Path) -> bool:
        return path.name.endswith(".summaries.parquet")

    assert found(tmp_path, "", is_output=is_output) == ["a.parquet"]
    assert found(tmp_path, "*.parquet", is_output=is_output) == ["a.parquet"]
    assert found(tmp_path, "a.summaries.parquet", is_output=is_output) == ["a.summaries.parquet"]


def test_a_folder_of_outputs_alone_is_no_corpus(tmp_path: Path) -> None:
    """Tonight's delivery is missing: that is said, and last night's summaries are not replaced by none."""
    with pytest.raises(CorpusNotFoundError) as raised:
        found(make(tmp_path, "a.summaries.parquet"), "", is_output=lambda _: True)
    assert "holds nothing but batchrun outputs" in raised.value.reason


def test_a_name_with_glob_characters_is_a_name(tmp_path: Path) -> None:
    """What is there as written is not expanded."""
    make(tmp_path, "a[1].jsonl", "a1.jsonl", "d[1]/x.jsonl")
    assert found(tmp_path, "a[1].jsonl", "d[1]") == ["a[1].jsonl", "d[1]/x.jsonl"]


def test_a_link_to_a_folder_above_is_not_followed(tmp_path: Path) -> None:
    """A circle of links ends; a link to another folder is followed."""
    make(tmp_path, "corpus/a.jsonl", "corpus/below/b.jsonl", "other/c.jsonl")
    (tmp_path / "corpus/below/up").symlink_to(tmp_path / "corpus")
    (tmp_path / "corpus/other").symlink_to(tmp_path / "other")
    assert found(tmp_path, "corpus") == ["corpus/a.jsonl", "corpus/below/b.jsonl", "corpus/other/c.jsonl"]


@pytest.mark.parametrize(
    "given",
    [["a.jsonl", "a.jsonl"], ["", "a.jsonl"], ["*.jsonl", "a.jsonl"], ["a.jsonl", "x/../a.jsonl"], ["", "."]],
)
def test_a_file_given_twice_is_refused(tmp_path: Path, given: list[str]) -> None:
    """Its rows would be in the output twice."""
    make(tmp_path, "a.jsonl", "x/.keep")
    error = refusal(CorpusError, *(os.path.join(tmp_path, name) for name in given))  # noqa: PTH118 - Path drops `.`
    assert f"{tmp_path}/a.jsonl is given twice\nGive every file once." == str(error)


@pytest.mark.parametrize("given", ["s3://bucket/a.parquet", "https://host/a.jsonl", "gs://bucket/*.parquet"])
def test_a_remote_path_is_refused(given: str) -> None:
    """Said at once, before anything looks for a folder of that name."""
    error = refusal(CorpusError, given)
    assert f"{given} is a remote path; batchrun reads local files\nCopy or mount it first." == str(error)
    assert ExitCode.CORPUS_UNUSABLE == error.exit_code == 65


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("none.parquet", "{home}/none.parquet is not there\nCheck the path."),
        ("none/none.parquet", "{home}/none/none.parquet is not there\nCheck the path."),
        (
            "empty",
            "no file of a known kind in {home}/empty; what there is: .zip, no ending\nKnown endings: {endings}.",
        ),
        ("*.pq", "no file of a known kind in {home}/*.pq\nKnown endings: {endings}."),
        ("none/", "{home}/none is not there\nCheck the path."),
    ],
)
def test_what_is_not_there_is_66(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, message: str
) -> None:
    """A missing file, a folder or a glob without one: the path looked for is shown whole."""
    make(tmp_path, "empty/notes.zip", "empty/README")
    monkeypatch.chdir(tmp_path)
    error = refusal(CorpusNotFoundError, given)
    assert message.format(home=tmp_path, endings=known_endings()) == str(error)
    assert ExitCode.CORPUS_NOT_FOUND == error.exit_code == 66


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.xlsx", b"PK\x03\x04"), ("a.json", b'[{"text": "x"}]'), ("a.gz", b"\x1f\x8b\x08"), ("a", b"")],
)
def test_an_unknown_kind_of_file_is_65(tmp_path: Path, name: str, content: bytes) -> None:
    """Named, with a way to convert it."""
    error = refusal(CorpusError, str(make(tmp_path, name, content=content) / name))
    assert (
        f"{tmp_path / name} is of no known kind\n"
        "Convert it, for example with DuckDB: COPY … TO 'corpus.parquet'; or name it by its kind: "
        f"{known_endings()}."
    ) == str(error)


def test_a_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    """The output names every row's source as text."""
    name = b"\xff.jsonl".decode(errors="surrogateescape")
    make(tmp_path, name)
    error = refusal(CorpusError, str(tmp_path))
    assert f"the name of {os.fsencode(tmp_path / name)!r} is not UTF-8\nRename it." == str(error)


def test_a_folder_that_can_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one below the folder that was given: its files would be missing silently."""
    make(tmp_path, "a.jsonl", "closed/b.jsonl")
    scandir = os.scandir

    def refusing(folder: str) -> object:
        if folder.endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    error = refusal(CorpusError, str(tmp_path))
    assert f"{tmp_path}/closed can not be read: Permission denied\nCheck its permissions." == str(error)


def test_a_file_that_can_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without a known ending is opened, which can fail."""

    def refusing(*_: object) -> object:
        raise PermissionError(13, "Permission denied")

    make(tmp_path, "a")
    monkeypatch.setattr(Path, "open", refusing)
    error = refusal(CorpusError, str(tmp_path / "a"))
    assert f"{tmp_path}/a can not be read: Permission denied\nCheck its permissions." == str(error)
