"""Every kind of input, and what comes out of it: a case is a line, and so is the next one."""

import bz2
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrun.corpus import batching
from batchrun.errors import BatchrunError, CorpusError, CorpusNotFoundError
from batchrun.records import Flag
from tests.corpus.reading import open_paths, read
from tests.fixtures import not_utf8

EMPTY = "skipped: empty_text"
BAD_JSON = "failed: invalid_json"
BAD_CSV = "failed: invalid_csv"
NOT_TEXT = "failed: not_text"
TOO_LARGE = "failed: text_too_large"
DAMAGED = "failed: damaged_file"

Files = dict[str, bytes]


def replaced(text: str) -> tuple[str, str]:
    """An expected text in which characters were replaced."""
    return text, Flag.REPLACED_CHARACTERS


def gz(data: bytes) -> bytes:
    return gzip.compress(data)


def zst(data: bytes) -> bytes:
    return bytes(pa.compress(data, "zstd", asbytes=True))


def lines(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def arrow(make: Callable[..., Any], rows: int = 1000, options: Any = None, **columns: Any) -> bytes:
    """An Arrow file in either of its two forms, `pa.ipc.new_stream` or `pa.ipc.new_file`."""
    table, sink = pa.table(columns), io.BytesIO()
    with make(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return sink.getvalue()


def dataset(*texts: str) -> Files:
    """What `datasets.save_to_disk` leaves."""
    names = [f"data-{n:05}-of-{len(texts):05}.arrow" for n in range(len(texts))]
    state = json.dumps({"_data_files": [{"filename": name} for name in names]}, indent=2).encode()
    data = {name: arrow(pa.ipc.new_stream, text=[text]) for name, text in zip(names, texts, strict=True)}
    return {"state.json": state, "dataset_info.json": b'{\n  "features": {}\n}'} | data


def below(folder: str, files: Files) -> Files:
    return {f"{folder}/{name}": data for name, data in files.items()}


HELLO = {"text": "hello"}
ID = {"kept": ("id",)}
LONG = "x" * 40_000_000

CASES: dict[str, tuple[Files, str, list[Any]]] = {
    # what lies in the folder, what of it is given ("" is the folder), the rows that come out
    # -- JSONL
    "JSONL": ({"a.jsonl": lines(HELLO)}, "", ["hello"]),
    "JSONL in gzip": ({"a.jsonl.gz": gz(lines(HELLO))}, "", ["hello"]),
    "JSONL in zstd": ({"a.ndjson.zst": zst(lines(HELLO))}, "", ["hello"]),
    "JSONL in bzip2": ({"a.jsonl.bz2": bz2.compress(lines(HELLO))}, "", ["hello"]),
    "JSONL in two gzips, one behind the other": ({"a.jsonl.gz": gz(lines(HELLO)) * 2}, "", ["hello"] * 2),
    "JSONL in two zstd frames": ({"a.jsonl.zst": zst(lines(HELLO)) * 2}, "", ["hello"] * 2),
    "JSONL with a mark and CRLF, in gzip": ({"a.jsonl.gz": gz(b'\xef\xbb\xbf{"text":"a"}\r\n\r\n')}, "", ["a"]),
    "JSONL in UTF-16": ({"a.jsonl": '{"text":"hé"}\n\n{"text":"\u2028b"}'.encode("utf-16")}, "", ["hé", "\u2028b"]),
    "JSONL in UTF-16, in gzip, cut inside a character": ({"a.jsonl.gz": gz('{"text":"é"}\n{"text":"b"}\n'.encode("utf-16")[:-3])}, "", ["é", BAD_JSON]),
    "JSONL by its content": ({"a.log": lines(HELLO)}, "a.log", ["hello"]),
    "JSONL by its content, in gzip": ({"a.gz": gz(lines(HELLO))}, "a.gz", ["hello"]),
    "JSONL without rows": ({"a.jsonl": b""}, "", []),
    "JSONL without rows, in gzip": ({"a.jsonl.gz": gz(b"")}, "", []),
    "JSONL with a line of 40 MB": ({"a.jsonl": lines({"text": LONG}, HELLO)}, "", [LONG, "hello"]),
    "JSONL with a line of 40 MB, in zstd": ({"a.jsonl.zst": zst(lines({"text": LONG}))}, "", [LONG]),
    "JSONL of mixed types": ({"a.jsonl": lines({"text": 1}, {"text": "1"}, {"text": [1]})}, "", [NOT_TEXT, "1", NOT_TEXT]),
    "JSONL without the text key": ({"a.jsonl": lines(HELLO, {"id": 1})}, "", ["hello", EMPTY]),
    "JSONL with null": ({"a.jsonl": b'{"text":null}\n{"text":"null"}\n'}, "", [EMPTY, "null"]),
    "JSONL with nan": ({"a.jsonl": b'{"text":NaN}\n{"text":"nan"}\n'}, "", [NOT_TEXT, "nan"]),
    "JSONL with a broken line": ({"a.jsonl": b'{"text":"a"}\n{"text":\n{"text":"b"}\n'}, "", ["a", BAD_JSON, "b"]),
    "JSONL with a line cut at the end": ({"a.jsonl": b'{"text":"a"}\n{"text":"b'}, "", ["a", BAD_JSON]),
    "JSONL with bytes that are no UTF-8": ({"a.jsonl": b'{"text":"a\xff"}\n'}, "", [replaced("a\ufffd")]),
    "JSONL with a lone surrogate": ({"a.jsonl": b'{"text":"a\\ud800"}\n'}, "", [replaced("a\ufffd")]),
    ".json with an object a line, as Spark writes": ({"part-0.json": lines(HELLO), "_SUCCESS": b""}, "", ["hello"]),
    ".json with an object a line, in gzip": ({"part-0.json.gz": gz(lines(HELLO))}, "", ["hello"]),
    # -- CSV and TSV
    "CSV": ({"a.csv": b"id,text\n1,hello\n"}, "", ["hello"]),
    "CSV in gzip": ({"a.csv.gz": gz(b"id,text\n1,hello\n")}, "", ["hello"]),
    "CSV in zstd": ({"a.csv.zst": zst(b"id,text\n1,hello\n")}, "", ["hello"]),
    "CSV with a mark and CRLF": ({"a.csv": b"\xef\xbb\xbftext,id\r\nhello,1\r\n"}, "", ["hello"]),
    "CSV in UTF-16": ({"a.csv": "text,id\nhé,1\n".encode("utf-16")}, "", ["hé"]),
    "CSV in UTF-16, in gzip": ({"a.csv.gz": gz("text,id\nhé,1\n".encode("utf-16"))}, "", ["hé"]),
    "CSV with quoted newlines": ({"a.csv": b'text,id\n"a\nb\r\nc",1\nd,2\n'}, "", ["a\nb\r\nc", "d"]),
    "CSV with quotes and commas": ({"a.csv": b'text,id\n"a ""b"", c",1\n'}, "", ['a "b", c']),
    "CSV with words for nothing": ({"a.csv": b"text,id\nnull,1\nNA,2\nnan,3\nNone,4\n"}, "", ["null", "NA", "nan", "None"]),
    "CSV with empty fields": ({"a.csv": b'text,id\n,1\n"",2\n  ,3\n'}, "", [EMPTY] * 3),
    "CSV with too many and too few fields": ({"a.csv": b"text,id\na,1\nb\nc,2,3\nd,4\n"}, "", ["a", BAD_CSV, BAD_CSV, "d"]),
    "CSV with a broken quote": ({"a.csv": b'text,id\na,1\n"b"x,2\nc,3\n'}, "", ["a", BAD_CSV, "c"]),
    "CSV with a quote that never ends": ({"a.csv": b'text,id\na,1\n"b,2\nc,3\n'}, "", ["a", BAD_CSV, "c"]),
    "CSV with two quotes that never end": ({"a.csv": b'text,id\n"b,2\nc,3\n"d,4\ne,5\n"f",6\n'}, "", [BAD_CSV, "c", BAD_CSV, "e", "f"]),
    "CSV with NUL": ({"a.csv": b"text,id\na\0b,1\n"}, "", ["a\0b"]),
    "CSV with blank lines": ({"a.csv": b"\n\ntext,id\n\na,1\n\n"}, "", ["a"]),
    "CSV with a field of 40 MB": ({"a.csv": b"text,id\n" + LONG.encode() + b",1\nb,2\n"}, "", [LONG, "b"]),
    "CSV with bytes that are no UTF-8": ({"a.csv": b"text,id\na\xe6\xbc,1\nb,2\n"}, "", [replaced("a\ufffd"), "b"]),
    "CSV without rows": ({"a.csv": b"text,id\n"}, "", []),
    "CSV without a last newline": ({"a.csv": b"text\na"}, "", ["a"]),
    "CSV with semicolons and a comma in the header": ({"a.csv": b"id;text;price, EUR\n1;a,b;3,50\n"}, "", ["a,b"]),
    "CSV with semicolons and a quoted comma in the header": ({"a.csv": b'"id, or number";text\n1;a,b\n'}, "", ["a,b"]),
    "CSV with commas and semicolons in the header": ({"a.csv": b"text,a;b;c;d\na;b,1\n"}, "", ["a;b"]),
    "CSV with semicolons behind a blank line": ({"a.csv": b"\n\nid;text\n1;a,b\n"}, "", ["a,b"]),
    "CSV with semicolons": ({"a.csv": b"id;text\n1;a,b\n"}, "", ["a,b"]),
    "CSV with carriage returns alone": ({"a.csv": b"id,text\r1,a\r2,b\r"}, "", ["a", "b"]),
    "TSV": ({"a.tsv": b"id\ttext\n1\ta,b\n"}, "", ["a,b"]),
    "TSV in gzip": ({"a.tsv.gz": gz(b'id\ttext\n1\t"a\tb"\n')}, "", ["a\tb"]),
    # -- Parquet
    "Parquet": ({"a.parquet": parquet(text=["hello", None, "", "nan"])}, "", ["hello", EMPTY, EMPTY, "nan"]),
    "Parquet without rows": ({"a.parquet": parquet(text=pa.array([], pa.string()))}, "", []),
    "Parquet of nulls, then of strings": ({"a.parquet": parquet(text=pa.nulls(2)), "b.parquet": parquet(text=["a"])}, "", [EMPTY, EMPTY, "a"]),
    "Parquet of a dictionary": ({"a.parquet": parquet(text=pa.array(["a", None, "a"]).dictionary_encode())}, "", ["a", EMPTY, "a"]),
    "Parquet of a dictionary with one value that is no UTF-8": (
        {"a.parquet": parquet(text=pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 2], pa.int32()), not_utf8([b"a", b"\xff", b""])))},
        "", ["a", replaced("\ufffd"), "a", EMPTY],
    ),
    "Parquet of views": ({"a.parquet": parquet(text=pa.array(["a" * 20, "b"], pa.string_view()))}, "", ["a" * 20, "b"]),
    "Parquet of bytes": ({"a.parquet": parquet(text=[b"a", b"\xff"])}, "", ["a", replaced("\ufffd")]),
    "Parquet of strings that are no UTF-8": ({"a.parquet": parquet(text=not_utf8([b"a", b"b\xff"]))}, "", ["a", replaced("b\ufffd")]),
    "Parquet of large strings that are no UTF-8": ({"a.parquet": parquet(text=not_utf8([b"\xff", b"b"], pa.large_string()))}, "", [replaced("\ufffd"), "b"]),
    "Parquet as Spark leaves it": (
        {"_SUCCESS": b"", "._SUCCESS.crc": b"crc", "_metadata": b"", ".part-0.snappy.parquet.crc": b"crc", "part-0.snappy.parquet": parquet(text=["a"])},
        "", ["a"],
    ),
    "Parquet as Spark leaves it, by a pattern": ({"_SUCCESS": b"", "_metadata": b"", ".x": b"", "part-0.parquet": parquet(text=["a"])}, "*", ["a"]),
    "Parquet by a pattern of folders": ({"y=1/a.parquet": parquet(text=["a"]), "y=2/a.parquet": parquet(text=["b"])}, "y=*", ["a", "b"]),
    "Parquet in nested folders": ({"b/c/a.parquet": parquet(text=["b"]), "a/z.parquet": parquet(text=["a"])}, "", ["a", "b"]),
    "Parquet without an ending": ({"part-00000": parquet(text=["a"])}, "", ["a"]),
    "Parquet beside a README": ({"README.md": b"# read", "dataset_info.json": b"{}", "a.parquet": parquet(text=["a"])}, "", ["a"]),
    # -- Arrow
    "Arrow stream": ({"a.arrow": arrow(pa.ipc.new_stream, text=["a", None, "b"], rows=2)}, "", ["a", EMPTY, "b"]),
    "Arrow file": ({"a.arrow": arrow(pa.ipc.new_file, text=["a", None, "b"], rows=2)}, "", ["a", EMPTY, "b"]),
    "Feather": ({"a.feather": arrow(pa.ipc.new_file, text=["a"])}, "", ["a"]),
    "Feather, compressed": ({"a.feather": arrow(pa.ipc.new_file, text=["a" * 5000], options=pa.ipc.IpcWriteOptions(compression="lz4"))}, "", ["a" * 5000]),
    "Arrow without rows": ({"a.arrow": arrow(pa.ipc.new_stream, text=pa.array([], pa.string()))}, "", []),
    "Arrow of strings that are no UTF-8": ({"a.arrow": arrow(pa.ipc.new_stream, text=not_utf8([b"a", b"\xff"]))}, "", ["a", replaced("\ufffd")]),
    "Arrow of a dictionary": ({"a.arrow": arrow(pa.ipc.new_stream, text=pa.array(["a", "b", "a"]).dictionary_encode())}, "", ["a", "b", "a"]),
    "Arrow of views": ({"a.arrow": arrow(pa.ipc.new_file, text=pa.array(["a" * 20, "b"], pa.string_view()))}, "", ["a" * 20, "b"]),
    "Arrow of views of bytes": ({"a.arrow": arrow(pa.ipc.new_stream, text=pa.array([b"a", b"\xff" * 20, None], pa.binary_view()))}, "", ["a", replaced("\ufffd" * 20), EMPTY]),
    "Arrow of views that are no UTF-8": ({"a.arrow": arrow(pa.ipc.new_stream, text=pa.array([b"\xff", b"b" * 20], pa.binary_view()).view(pa.string_view()))}, "", [replaced("\ufffd"), "b" * 20]),
    "Arrow of a dictionary of views": (
        {"a.arrow": arrow(pa.ipc.new_stream, text=pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array(["a", "b" * 20], pa.string_view())))},
        "", ["b" * 20, "a"],
    ),
    "Arrow of a dictionary of views of bytes": (
        {"a.arrow": arrow(pa.ipc.new_stream, text=pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array([b"a", b"b"], pa.binary_view())))},
        "", ["b", "a"],
    ),
    "Arrow of a dictionary of nulls": (
        {"a.arrow": arrow(pa.ipc.new_stream, text=pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.nulls(1)))},
        "", [EMPTY] * 2,
    ),
    "Arrow by its content": ({"a.bin": arrow(pa.ipc.new_stream, text=["a"])}, "a.bin", ["a"]),
    "a dataset of two files": (dataset("a", "b"), "", ["a", "b"]),
    "a dataset with a cache of a transformation": (dataset("a") | {"cache-0123.arrow": arrow(pa.ipc.new_stream, text=["z"])}, "", ["a"]),
    "a DatasetDict": ({"dataset_dict.json": b'{"splits": ["train", "test"]}'} | below("train", dataset("b")) | below("test", dataset("a")), "", ["a", "b"]),
    # -- text and HTML
    "text files": ({"b.txt": b"two\n", "a.md": b"# one", "c/d.rst": b"three"}, "", ["# one", "two\n", "three"]),
    "text files, compressed": ({"a.txt.gz": gz(b"one"), "b.rst.zst": zst(b"two"), "c.html.gz": gz(b"<p>three")}, "", ["one", "two", "three"]),
    "a text file": ({"a.txt": b"one", "b.txt": b"two"}, "a.txt", ["one"]),
    "text files by a pattern": ({"a.txt": b"one", "b.md": b"two", "c.txt": b"three"}, "*.txt", ["one", "three"]),
    "text files that hold nothing": ({"a.txt": b"", "b.txt": b" \n", "c.html": b"<p></p>", "d.html": b""}, "", [EMPTY] * 4),
    "text files with marks": ({"a.txt": b"\xef\xbb\xbfa", "b.txt": "é".encode("utf-16"), "c.txt": b"\xfe\xff\0c"}, "", ["a", "é", "c"]),
    "text that is no UTF-8": ({"a.txt": b"a\xffb", "b.txt": b"\xe6\xbc"}, "", [replaced("a\ufffdb"), replaced("\ufffd")]),
    "text with NUL": ({"a.txt": b"a\0b"}, "", ["a\0b"]),
    "a compressed text that is cut off": ({"a.txt": b"a", "b.txt.gz": gz(b"text" * 99)[:-9], "c.txt": b"c"}, "", ["a", DAMAGED, "c"]),
    "a compressed text of 0 bytes": ({"a.txt": b"a", "b.txt.gz": b""}, "", ["a", DAMAGED]),
    "text files beside what nobody reads": ({"a.txt": b"a", "logo.png": b"\x89PNG", "Makefile": b"all:"}, "", ["a"]),
    "HTML": ({"a.html": b"<title>T</title><script>x()</script><p>One <b>wo</b>rd\n more<br>line<p>two&amp;"}, "", ["T\nOne word more\nline\ntwo&"]),
    "HTML of a list and a table": ({"a.htm": b"<ul><li>a<li>b</ul><table><tr><td>1<td>2<tr><td>3</table>"}, "", ["a\nb\n1 2\n3"]),
    "HTML that declares its charset": ({"a.html": b"<meta charset=windows-1252><p>caf\xe9 \x80"}, "", ["café €"]),
    "HTML that declares it the old way": ({"a.html": b'<meta http-equiv=Content-Type content="text/html; charset=shift_jis"><p>\x93\xfa'}, "", ["日"]),
    "HTML that declares a mark": ({"a.html": b"\xef\xbb\xbf<meta charset=latin1><p>\xc3\xa9"}, "", ["é"]),
    "HTML that declares what is no charset": ({"a.html": b"<meta charset=base64><p>a", "b.html": b"<meta charset=idna><p>\xc3\xa9"}, "", ["a", "é"]),
    "HTML that is no UTF-8": ({"a.html": b"<p>a\xff"}, "", [replaced("a\ufffd")]),
    "HTML nested deep": ({"a.html": b"<div>" * 3000 + b"deep"}, "", ["deep"]),
    "HTML nested beyond reason": ({"a.html": b"<div>" * 300_000 + b"deep <b>down"}, "", ["deep down"]),
    "HTML of many paragraphs that do not end": ({"a.html": b"<p>a" * 6000}, "", ["\n".join("a" * 6000)]),
    # -- mixtures
    "tables of all kinds": (
        {"a.parquet": parquet(text=["a"]), "b.jsonl": lines({"text": "b"}), "c.csv": b"text\nc\n", "d.tsv.gz": gz(b"text\nd\n"), "e.arrow": arrow(pa.ipc.new_stream, text=["e"])},
        "", ["a", "b", "c", "d", "e"],
    ),
    "documents beside a table without texts": ({"a.rst": b"a", "chips.csv.gz": gz(b"chip,year\nx,1\n"), "no.csv": b""}, "", ["a"]),
    "documents beside settings": ({"a.md": b"a", "package.json": b'{"name": "x"}\n'}, "", ["a"]),
    "tables beside metadata and documents": ({"a.csv": b"text\na\n", "meta.json": lines(HELLO), "README.md": b"r", "x.html": b"x"}, "", ["a"]),
}  # fmt: skip


def write(folder: Path, files: Files) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_input(tmp_path: Path, name: str) -> None:
    """Each row comes out as its text, with a flag where characters were replaced, or as why it has none."""
    files, given, expected = CASES[name]
    rows = read(write(tmp_path, files) / given)
    flags = rows.flags
    found = [(text, *flags[row]) if row in flags else text for row, text in enumerate(rows.outcomes)]
    assert expected == found


JSON_IDS = lines({"id": "x", "text": "a"})

COLUMNS: dict[str, tuple[Files, str, dict[str, Any], list[Any], dict[str, list[Any]]]] = {
    # files, given, wishes, the ids and the kept columns that come out
    "text files are known by their path": ({"b/c.txt": b"1", "a.md.gz": gz(b"2")}, "", {}, ["a.md.gz", "b/c.txt"], {}),
    "CSV ids are strings": ({"a.csv": b"id,text\n007,a\n1e5,b\n,c\n"}, "", {}, ["007", "1e5", ""], {}),
    "CSV row numbers": ({"a.csv": b"x,text\n1,a\n2\n3,b\n"}, "", {}, [0, 1, 2], {}),
    "CSV kept columns": ({"a.csv": b"id,text,n\n1,a,NA\n2,b\n3,c,\n"}, "", {"kept": ("n",)}, ["1", None, "3"], {"n": ["NA", None, ""]}),
    "CSV ids and JSON numbers": ({"a.csv": b"id,text\n07,a\n", "b.jsonl": lines({"id": 7, "text": "b"})}, "", {}, ["07", "7"], {}),
    "CSV ids and JSON row numbers": ({"a.csv": b"id,text\n07,a\n", "b.jsonl": lines(HELLO)}, "", {}, ["07", "0"], {}),
    "CSV row numbers and JSON ids": ({"a.csv": b"text\na\n", "b.jsonl": JSON_IDS}, "", {}, ["0", "x"], {}),
    "a CSV id that is no UTF-8": ({"a.csv": b"id,text\n\xff,a\n"}, "", {}, ["\ufffd"], {}),
    "partitions": (
        {"year=2024/m=01/a.parquet": parquet(text=["a"]), "year=2024/m=02/b.parquet": parquet(text=["b", "c"])},
        "", {"kept": ("year", "m")}, [0, 0, 1], {"year": ["2024"] * 3, "m": ["01", "02", "02"]},
    ),
    "partitions as written": (
        {"k=a%2Fb%20c/1.csv": b"text\na\n", "k=__HIVE_DEFAULT_PARTITION__/2.jsonl": lines(HELLO), "k=%FF+1/3.parquet": parquet(text=["t"]), "k=/4.arrow": arrow(pa.ipc.new_stream, text=["u"])},
        "", {"kept": ("k",)}, [0, 0, 0, 0], {"k": ["", "%FF+1", None, "a/b c"]},
    ),
    "partitions as ids": ({"id=7/a.jsonl": lines(HELLO), "id=8/a.jsonl": lines(HELLO, HELLO)}, "", {"id": "id"}, ["7", "8", "8"], {}),
    "partitions of text files": ({"lang=de/a.txt": b"a", "lang=fr/b.txt": b"b"}, "", {"kept": ("lang", "id")}, ["lang=de/a.txt", "lang=fr/b.txt"], {"lang": ["de", "fr"], "id": ["lang=de/a.txt", "lang=fr/b.txt"]}),
    "partitions in the path given": ({"day=3/a.parquet": parquet(text=["a"])}, "day=3/a.parquet", {"kept": ("day",)}, [0], {"day": ["3"]}),
    "a partition that the file has as a column": ({"n=9/a.parquet": parquet(text=["a"], n=[1])}, "", {"kept": ("n",)}, [0], {"n": [1]}),
    "a partition whose name begins with _": ({"_k=1/a.parquet": parquet(text=["a"])}, "", {"kept": ("_k",)}, [0], {"_k": ["1"]}),
    "Arrow kept columns": ({"a.feather": arrow(pa.ipc.new_file, z=[1.5], id=[2**60], text=["a"])}, "", {"kept": ("z",)}, [2**60], {"z": [1.5]}),
    "a dataset's row numbers": (dataset("a", "b"), "", {}, [0, 0], {}),
    "text kept": ({"a.txt": b"a", "b.html": b"<p>b"}, "", {"kept": ("text",)}, ["a.txt", "b.html"], {"text": ["a", "b"]}),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_ids_and_kept_columns(tmp_path: Path, name: str) -> None:
    """Partitions are columns of the files below them; what a format has no types for is text."""
    files, given, wishes, ids, kept = COLUMNS[name]
    rows = read(write(tmp_path, files) / given, **wishes)
    assert ids == rows.output().to_pylist()
    assert kept == {column: rows.output(column).to_pylist() for column in kept}


def test_a_partition_can_be_the_only_column_read(tmp_path: Path) -> None:
    """Rows are counted all the same."""
    rows = read(write(tmp_path, {"t=hello/a.parquet": parquet(x=[1, 2])}) / "", text="t")
    assert ["hello", "hello"] == rows.texts


MESSAGES: dict[str, tuple[Files, str, list[str]]] = {
    # what a failed or skipped row says of itself; {home} is the folder
    "JSON": ({"a.jsonl.gz": gz(b'{"text":"a"}\n\n{\n')}, "", ["{home}/a.jsonl.gz, line 3 is no JSON: Expecting property name"]),
    "no key": ({"a.jsonl": b'{"text":"a"}\n{}\n'}, "", ["{home}/a.jsonl, line 2 has no key 'text', which counts as null"]),
    "few fields": ({"a.csv": b'text,id\n"a\nb",1\nc\n'}, "", ["{home}/a.csv, line 4 has 1 fields, and the header 2"]),
    "open quote": ({"a.csv": b'text,id\n"a,1\nb,2\n'}, "", ["{home}/a.csv, line 2 is no CSV: unexpected end of data"]),
    "cut text": ({"a.txt": b"a", "b.txt.gz": gz(b"x" * 999)[:-9]}, "", ["{home}/b.txt.gz is cut off or damaged: Truncated compressed stream"]),
    "not text": ({"a.jsonl": lines({"text": 1})}, "", ["{home}/a.jsonl, line 1: the text is of type int, not a string"]),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
def test_a_bad_row_names_its_file_and_line(tmp_path: Path, name: str) -> None:
    """As an editor numbers the lines."""
    files, given, expected = MESSAGES[name]
    said = [verdict.error for verdict in read(write(tmp_path, files) / given).verdicts.values()]
    assert len(expected) == len(said)
    for begin, error in zip(expected, said, strict=True):
        assert error.startswith(begin.format(home=tmp_path)), error


STATE = b'{"_data_files": [{"filename": "data-1.arrow"}]}'

REFUSED: dict[str, tuple[Files, str, type[BatchrunError], str]] = {
    # what ends the job, and how its reason begins
    "Parquet of 0 bytes": ({"a.parquet": b""}, "", CorpusError, "{home}/a.parquet is empty (0 bytes)"),
    "Arrow of 0 bytes": ({"a.arrow": b""}, "", CorpusError, "{home}/a.arrow is empty (0 bytes)"),
    "CSV of 0 bytes": ({"a.csv": b""}, "", CorpusError, "{home}/a.csv is empty (0 bytes): a header is needed"),
    "CSV of blank lines": ({"a.csv": b"\n\n"}, "", CorpusError, "{home}/a.csv has no rows: a header is needed"),
    "CSV without a text column": ({"a.csv": b"1,hello\n"}, "", CorpusError, "{home}/a.csv has no text column (text, body, content); it has 1 (string), hello (string)"),
    "CSV with two text columns": ({"a.csv": b"text,text\na,b\n"}, "", CorpusError, "{home}/a.csv has several columns 'text'"),
    "CSV with a broken header": ({"a.csv": b'"text"x\na\n'}, "", CorpusError, "{home}/a.csv: its header is no CSV"),
    "gzip of 0 bytes": ({"a.jsonl.gz": b""}, "", CorpusError, "{home}/a.jsonl.gz is empty (0 bytes), which no .gz file is"),
    "gzip that is none": ({"a.jsonl.gz": b"text"}, "", CorpusError, "{home}/a.jsonl.gz is cut off or damaged after line 0: zlib inflate failed"),
    "gzip cut off": ({"a.jsonl.gz": gz(lines(HELLO))[:-8]}, "", CorpusError, "{home}/a.jsonl.gz is cut off or damaged after line 0: Truncated compressed stream"),
    "zstd cut off": ({"a.csv.zst": zst(b"text\na\n")[:-2]}, "", CorpusError, "{home}/a.csv.zst is cut off or damaged after line"),
    "Arrow that is none": ({"a.arrow": b"text" * 9}, "", CorpusError, "{home}/a.arrow is not readable as Arrow: "),
    "Arrow cut off": ({"a.arrow": arrow(pa.ipc.new_stream, text=["a" * 999])[:-500]}, "", CorpusError, "{home}/a.arrow is damaged after row 0: "),
    "a dataset that lacks a file": ({"state.json": STATE, "dataset_info.json": b"{}", "data-0.arrow": b""}, "", CorpusError, "{home}/state.json names data-1.arrow, which is not there"),
    "text files have no other column": ({"a.txt": b"a"}, "", CorpusError, "{home}/a.txt has no column 'x'; it has id (string), text (string)"),
    "nothing but markers": ({"_SUCCESS": b"", ".x.crc": b""}, "", CorpusNotFoundError, "no file of a known kind in {home}"),
    "nothing that is known": ({"a.png": b"", "b.json": b"{\n}"}, "", CorpusNotFoundError, "no file of a known kind in {home}; what there is: .json, .png"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_not_be_read_is_named(tmp_path: Path, name: str) -> None:
    """A file whose rows are not known is not passed over: the job ends there, and says what to do."""
    files, given, kind, reason = REFUSED[name]
    wishes: dict[str, Any] = {"text": "x"} if "other column" in name else {}
    with pytest.raises(kind) as caught:
        read(write(tmp_path, files) / given, **wishes)
    assert caught.value.reason.startswith(reason.format(home=tmp_path)), caught.value.reason
    assert caught.value.hint


def test_the_rows_before_a_cut_are_read(tmp_path: Path) -> None:
    """Then the file is named, with the last line that was good."""
    whole = lines(*[{"text": f"{n} " * 50} for n in range(5000)])
    path = write(tmp_path, {"a.jsonl.gz": gz(whole)[:-20]}) / "a.jsonl.gz"
    batches = open_paths(path).batches()
    first = next(batches)
    assert first.texts[0] == "0 " * 50
    with pytest.raises(CorpusError, match="is cut off or damaged after line"):
        list(batches)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a.jsonl": lines({"text": "x" * 5000}, HELLO)}, TOO_LARGE),
        ({"a.csv": b"text\n" + b"x" * 5000 + b"\nhello\n"}, TOO_LARGE),
        ({"a.csv": b'text\n"' + b"x" * 5000 + b"\nhello\n"}, TOO_LARGE),
        ({"a.csv": b"text\r\n" + b"x" * 5000 + b"\r\nhello\r\n"}, TOO_LARGE),
        ({"a.txt": b"x" * 5000, "b.txt": b"hello"}, TOO_LARGE),
    ],
    ids=["JSONL", "CSV", "CSV with an open quote", "CSV with CRLF", "text"],
)
def test_what_is_too_large_to_hold_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Files, expected: str
) -> None:
    """One endless line is one failed row, and memory stays bounded."""
    from batchrun.corpus import delimited, jsonl, text_files

    for module in (delimited, jsonl, text_files):
        monkeypatch.setattr(module, "MAX_ROW_BYTES", 2000)
    assert [expected, "hello"] == read(write(tmp_path, files)).outcomes


def test_a_quote_that_is_not_closed_does_not_eat_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row that it opens fails, the rows behind it are read; so is what is behind a line too long to hold."""
    from batchrun.corpus import delimited

    monkeypatch.setattr(delimited, "MAX_ROW_BYTES", 2000)
    monkeypatch.setattr(delimited, "PIECE_CHARS", 300)
    texts = [f"text {n}" for n in range(1000)]
    data = "\n".join(
        ["text,id", '"open,1', *[f"{text},2" for text in texts], "x" * 5000, '"a\nb",3', "y" * 900 + ",4"]
    )
    rows = read(write(tmp_path, {"a.csv": data.encode()}))
    assert [BAD_CSV, *texts, TOO_LARGE, "a\nb", "y" * 900] == rows.outcomes
    assert [
        f"{tmp_path}/a.csv, line 2 is no CSV: a quote is not closed within 0 MiB",
        f"{tmp_path}/a.csv, line 1003 is longer than 0 MiB",
    ] == [verdict.error for verdict in rows.verdicts.values()]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl", "csv", "txt"])
def test_batches_are_bounded_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Also where a file holds equal texts once: in the batch each has its length."""
    monkeypatch.setattr(batching, "BATCH_BYTES", 20_000)
    texts = ["y" * 1000] * 200
    if kind == "txt":
        write(tmp_path, {f"{n:03}.txt": text.encode() for n, text in enumerate(texts)})
    else:
        content = {
            "parquet": parquet(text=texts),
            "arrow": arrow(pa.ipc.new_file, text=pa.array(texts).dictionary_encode()),
            "jsonl": lines(*[{"text": text} for text in texts]),
            "csv": ("text\n" + "\n".join(texts)).encode(),
        }
        write(tmp_path, {f"a.{kind}": content[kind]})
    rows = read(tmp_path)
    assert texts == rows.texts
    assert max(len(batch) for batch in rows.batches) <= 50


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()], ids=str)
def test_views_are_read_many_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: pa.DataType
) -> None:
    """Each row counts with its own bytes, not with those of the file."""
    monkeypatch.setattr(batching, "BATCH_BYTES", 20_000)
    texts = [f"{n:1000}" for n in range(200)]
    column = pa.array([text.encode() for text in texts], pa.binary()).cast(kind)
    rows = read(write(tmp_path, {"a.arrow": arrow(pa.ipc.new_stream, text=column)}))
    assert texts == rows.texts
    assert [25] * 8 == [len(batch) for batch in rows.batches]


def test_what_is_passed_over_is_said(tmp_path: Path) -> None:
    """A line for each reason, with how many."""
    from batchrun.corpus.inputs import find_files

    files = {
        "a.csv": b"text\na\n",
        "README.md": b"r",
        "b.txt": b"t",
        "x.png": b"",
        "y.png": b"",
        "Makefile": b"",
    }
    write(tmp_path, files | below("d", dataset("a") | {"cache-1.arrow": b""}))
    given = str(tmp_path)
    assert [
        f"{given}/d: 1 .arrow files that its state.json does not name are passed over",
        f"{given}: 2 .md, .txt files beside the data are no rows; they are passed over",
        f"{given}: 5 files that hold no texts or are of no known kind are passed over (.json, .png, no ending)",
    ] == find_files([given], lambda _: False).notes


def test_many_text_files_are_few_batches(tmp_path: Path) -> None:
    """A batch has many sources; each file is row 0 of its own."""
    for number in range(1000):
        (tmp_path / f"{number:05}.txt").write_bytes(b"text %d" % number)
    rows = read(tmp_path)
    assert [f"text {number}" for number in range(1000)] == rows.texts
    assert [(number, 0) for number in range(1000)] == rows.places
    assert 1 == len(rows.batches)
    assert [f"{tmp_path}/{number:05}.txt" for number in range(1000)] == rows.corpus.sources


def test_a_limit_counts_text_files(tmp_path: Path) -> None:
    """As it counts rows."""
    write(tmp_path, {f"{n}.txt": b"x%d" % n for n in range(5)})
    assert [(0, 0), (1, 0), (2, 0)] == read(tmp_path, limit=3).places
