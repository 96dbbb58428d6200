"""What a submit takes in: standard input, folders of text, compressed files; each through to its output."""

import bz2
import gzip
import io
import json
import shutil
import sys
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from batchrun.errors import ExitCode
from tests.commands import Bench, Result, texts

ROWS = [{"id": f"d{number}", "text": text} for number, text in enumerate(texts(5))]


def jsonl(rows: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Give `data` on standard input to what is run next in this process."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def submit_stdin(bench: Bench, monkeypatch: pytest.MonkeyPatch, data: bytes) -> Result:
    feed(monkeypatch, data)
    return bench.submit("-", "-o", bench.home / "out.parquet")


def test_standard_input_needs_an_output(bench: Bench) -> None:
    """There is nothing that it could stand beside."""
    result = bench.run("submit", "-")
    assert ExitCode.USAGE == result.code
    assert "standard input needs an output path\n  → Say where the summaries go: -o" in result.err


def test_the_same_standard_input_again_is_the_same_plan(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known by its content: planned once, nothing computed twice; another content is planned anew."""
    first = submit_stdin(bench, monkeypatch, jsonl(ROWS))
    assert (0, 5, 5) == (first.code, first.json["rows"]["ok"], first.json["rows"]["computed"])
    rows = bench.output("out.parquet")
    assert [("-", number, f"d{number}") for number in range(5)] == [
        (row["source"], row["row"], row["doc_id"]) for row in rows
    ]
    again = submit_stdin(bench, monkeypatch, jsonl(ROWS))
    assert (0, 5, 0) == (again.code, again.json["rows"]["ok"], again.json["rows"]["computed"])
    assert "the corpus is unchanged since it was planned" in again.err
    other = submit_stdin(bench, monkeypatch, jsonl([*ROWS, {"id": "new", "text": "another text"}]))
    assert (6, 1) == (other.json["rows"]["ok"], other.json["rows"]["computed"])
    assert "unchanged" not in other.err


def test_a_plan_of_standard_input_is_that_of_the_submit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever each is run from; and `resume` needs no input at all."""
    feed(monkeypatch, jsonl(ROWS))
    assert 0 == bench.run("plan", "-").code
    (bench.home / "elsewhere").mkdir()
    monkeypatch.chdir(bench.home / "elsewhere")
    result = submit_stdin(bench, monkeypatch, jsonl(ROWS))
    assert "the corpus is unchanged since it was planned" in result.err
    assert 0 == bench.run("resume", result.json["job_id"]).code
    [_] = bench.home.glob("checkpoints/*/seed-0/corpora/*")


def test_the_copy_of_standard_input_is_gone_when_planned(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What may not stay on the disk does not."""
    submit_stdin(bench, monkeypatch, jsonl(ROWS))
    assert [] == list(bench.home.glob("buckets/**/stdin*"))


def test_a_bad_line_of_standard_input_says_so(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the name of the copy."""
    assert 3 == submit_stdin(bench, monkeypatch, jsonl(ROWS) + b"{\n").code
    assert bench.output("out.parquet")[5]["error"].startswith("standard input, line 6 is no JSON: ")


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "two gzips": lambda data: gzip.compress(data[:40]) + gzip.compress(data[40:]),
    "zstd": lambda data: bytes(pa.compress(data, "zstd", asbytes=True)),
    "bzip2": bz2.compress,
}


@pytest.mark.parametrize("kind", PACKED)
def test_compressed_standard_input_is_unpacked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """By its first bytes; it is the same corpus as what it holds."""
    feed(monkeypatch, PACKED[kind](jsonl(ROWS)))
    assert f"{len(ROWS):,}  to run" in bench.run("plan", "-").out
    [plan] = bench.home.glob("checkpoints/*/seed-0/corpora/*/plan.json")
    planned = plan.read_bytes()
    feed(monkeypatch, jsonl(ROWS))
    assert 0 == bench.run("plan", "-").code
    assert planned == plan.read_bytes()


NO_JSONL = {
    # what comes on standard input, what it is taken for, and what to do
    "CSV": (b"id,text\n1,a\n", "it looks like CSV", "Save it in a file that ends in .csv"),
    "CSV in gzip": (gzip.compress(b"id,text\n1,a\n"), "it looks like CSV", "Save it in a file that ends in .csv"),
    "CSV in Germany": (b"id;text\n1;a\n", "it looks like CSV with semicolons", "Save it in a file that ends in .csv"),
    "TSV": (b"\xef\xbb\xbfid\ttext, more\n1\ta\n", "it looks like TSV", "Save it in a file that ends in .tsv"),
    "an array": (b'[{"text": "a"},\n {"text": "b"}]\n', "it looks like a JSON array", "jq -c '.[]'"),
    "an array in a line": (b'[{"text": "a"}]\n', "it looks like a JSON array", "jq -c '.[]'"),
    "an object over lines": (b'{\n  "text": "a"\n}\n', "it looks like JSON over several lines", "jq -c ."),
    "a page": (b"<html><p>a</html>\n", "it looks like HTML or XML", ".html"),
    "CSV in UTF-16": ("id,text\n1,a\n".encode("utf-16"), "it looks like binary data or UTF-16", "Save it"),
    "a text": (b"Once upon a time\n", "it looks like plain text", ".txt"),
    "gzip cut off": (gzip.compress(jsonl(ROWS))[:-9], "standard input is cut off or damaged", "Send it again, whole."),
    "no gzip": (b"\x1f\x8bnone", "standard input is cut off or damaged", "Send it again, whole."),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_JSONL)
def test_standard_input_that_is_no_jsonl_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Where none of its first lines is an object: not a million failed rows; and nothing stays on the disk."""
    data, looks, what_to_do = NO_JSONL[name]
    feed(monkeypatch, data)
    result = bench.run("plan", "-")
    assert ExitCode.CORPUS_UNUSABLE == result.code
    assert looks in result.err
    assert what_to_do in result.err
    assert [] == list(bench.home.glob("buckets/**/stdin*"))


def test_empty_standard_input_is_an_empty_output(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an empty file is."""
    assert 0 == submit_stdin(bench, monkeypatch, b"").code
    assert [] == bench.output("out.parquet")


def test_a_folder_of_text_is_summarized(bench: Bench) -> None:
    """Each file is a row, known by its path below the folder; the output says the path as given."""
    folder = bench.home / "docs"
    (folder / "b").mkdir(parents=True)
    for number, name in enumerate(["a.txt", "b/c.md", "d.html", "e.txt.gz"]):
        data = f"Document {number} of text.".encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    result = bench.submit(folder)
    assert (0, 4) == (result.code, result.json["rows"]["ok"])
    rows = bench.output("docs.summaries.parquet")
    assert ["a.txt", "b/c.md", "d.html", "e.txt.gz"] == [row["doc_id"] for row in rows]
    assert [f"{folder}/{row['doc_id']}" for row in rows] == [row["source"] for row in rows]
    assert [f"Document {number} of text." for number in range(4)] == [row["summary"] for row in rows]
    assert 0 == bench.submit(folder).json["rows"]["computed"]


def test_partitions_can_be_kept(bench: Bench) -> None:
    """Through to the output, as strings."""
    for day in ("01", "02"):
        (bench.home / "news" / f"day={day}").mkdir(parents=True)
        bench.corpus([f"news of day {day}"], f"news/day={day}/part-0.parquet")
    assert 0 == bench.submit(bench.home / "news", "--keep-columns", "day").code
    assert [("01", 0), ("02", 0)] == [
        (row["day"], row["doc_id"]) for row in bench.output("news.summaries.parquet")
    ]


def test_what_is_passed_over_is_said(bench: Bench) -> None:
    """One line of standard error; also where the plan is not new."""
    (bench.home / "news").mkdir()
    bench.corpus(["news"], "news/a.parquet")
    (bench.home / "news" / "README.md").write_text("read me")
    for _ in range(2):
        assert f"{bench.home}/news: 1 .md files beside the data are no rows; they are passed over" in (
            bench.submit(bench.home / "news").err
        )


def test_a_cut_off_file_ends_with_65(bench: Bench) -> None:
    """Its rows are not known, so there is no output that would lack them."""
    path = bench.home / "corpus.jsonl.gz"
    path.write_bytes(gzip.compress(jsonl(ROWS))[:-8])
    result = bench.submit(path)
    assert ExitCode.CORPUS_UNUSABLE == result.code
    assert f"{path} is cut off or damaged after line " in result.err
    assert "Copy or write it again, or take it out of the corpus." in result.err
    assert not (bench.home / "corpus.summaries.parquet").exists()


def test_a_compressed_file_names_its_output_without_the_ending(bench: Bench) -> None:
    """`corpus.jsonl.gz` and `corpus.jsonl` have one output."""
    path = bench.home / "corpus.jsonl.gz"
    path.write_bytes(gzip.compress(jsonl(ROWS)))
    assert str(bench.home / "corpus.summaries.parquet") == bench.submit(path).json["output"]


def test_two_corpora_of_one_stem_do_not_share_an_output(bench: Bench) -> None:
    """The second is refused before any work, unless its path is said; the first goes on as ever."""
    first, second = bench.corpus(texts(2)), bench.home / "corpus.csv"
    second.write_text("text\nof the other\n")
    out = bench.home / "corpus.summaries.parquet"
    assert 0 == bench.submit(first).code
    assert ExitCode.OUTPUT_UNWRITABLE == (refused := bench.submit(second)).code
    assert f"{out} holds the summaries of another corpus, {first}; it is not overwritten" in refused.err
    assert "→ Give another path with -o, or move it away." in refused.err
    assert 2 == len(bench.output())
    bench.write_spec(name="other")
    assert 0 == bench.submit(first, "--job", "other").code
    assert 0 == bench.submit(second, "-o", out).code
    assert 1 == len(bench.output())
    assert [73, 0] == [bench.submit(first).code, bench.submit(second).code]


def test_a_corpus_that_was_moved_with_its_output_is_the_same(bench: Bench) -> None:
    """Also one that is reached through a link; while two of one name in two places are two."""
    (bench.home / "before").mkdir()
    assert 0 == bench.submit(bench.corpus(texts(2), "before/corpus.parquet")).code
    (bench.home / "link").symlink_to("before")
    assert 0 == bench.submit(bench.home / "link" / "corpus.parquet").code
    (bench.home / "link").unlink()
    (bench.home / "before").rename(bench.home / "now")
    assert 0 == bench.submit(bench.home / "now" / "corpus.parquet").code
    shutil.copytree(bench.home / "now", bench.home / "copy")
    assert 73 == bench.submit(bench.home / "copy" / "corpus.parquet").code


def test_an_output_among_text_files_is_no_data(bench: Bench) -> None:
    """Last night's Parquet beside the documents does not make them pass for its README."""
    folder = bench.home / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("a document")
    for _ in range(2):
        result = bench.submit(folder, "-o", folder / "out.parquet")
        assert (0, 1) == (result.code, result.json["rows"]["ok"])


def test_a_link_to_nothing_is_named(bench: Bench) -> None:
    """A corpus that is half mounted does not complete with the other half."""
    folder = bench.home / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"text": "a"}\n')
    (folder / "b.jsonl").symlink_to("/nonexistent/b.jsonl")
    result = bench.run("submit", folder)
    assert [65, True] == [result.code, "links to /nonexistent/b.jsonl, which is not there" in result.err]


def test_a_folder_above_is_no_id(bench: Bench) -> None:
    """By convention the id is a column of the file; a partition of that name is one when it is asked for."""
    folder = bench.home / "id=5"
    folder.mkdir()
    (folder / "x.csv").write_text("text\na\nb\n")
    out = bench.home / "out.parquet"
    assert 0 == bench.run("submit", folder / "x.csv", "-o", out).code
    assert [0, 1] == [row["doc_id"] for row in bench.output("out.parquet")]
    assert 0 == bench.run("submit", folder / "x.csv", "-o", out, "--id-column", "id").code
    assert ["5", "5"] == [row["doc_id"] for row in bench.output("out.parquet")]
