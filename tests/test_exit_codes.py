"""Every bad input gets its exit code, says what happened, and what to do next."""

import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrun.cli.main import COMMANDS
from tests.commands import Bench, texts


def no_corpus(bench: Bench) -> list[object]:
    return [bench.home / "missing.parquet"]


def no_text_column(bench: Bench) -> list[object]:
    pq.write_table(pa.table({"id": [1], "words": ["a"], "n": [2]}), bench.home / "c.parquet")
    return [bench.home / "c.parquet"]


def named_column_missing(bench: Bench) -> list[object]:
    return [bench.corpus(["a"]), "--text-column", "story"]


def struct_text(bench: Bench) -> list[object]:
    pq.write_table(pa.table({"text": [{"a": "b"}]}), bench.home / "c.parquet")
    return [bench.home / "c.parquet"]


def no_parquet(bench: Bench) -> list[object]:
    (bench.home / "c.parquet").write_text("hello")
    return [bench.home / "c.parquet"]


def empty_file(bench: Bench) -> list[object]:
    (bench.home / "c.parquet").touch()
    return [bench.home / "c.parquet"]


def half_a_file(bench: Bench) -> list[object]:
    path = bench.corpus(texts(50))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return [path]


def unknown_kind(bench: Bench) -> list[object]:
    (bench.home / "c.docx").write_bytes(b"PK\x03\x04")
    return [bench.home / "c.docx"]


def remote(bench: Bench) -> list[object]:
    return ["s3://bucket/c.parquet", "-o", bench.home / "out.parquet"]


def unknown_key(bench: Bench) -> list[object]:
    bench.write_spec(extra="modle = 'x'\n")
    return [bench.corpus(["a"])]


def no_spec(bench: Bench) -> list[object]:
    return [bench.corpus(["a"]), "--job", "nothing.toml"]


def no_model(bench: Bench) -> list[object]:
    os.environ["HF_HUB_OFFLINE"] = "1"
    bench.model = Path("nobody/no-such-model")
    bench.write_spec()
    return [bench.corpus(["a"])]


def output_is_corpus(bench: Bench) -> list[object]:
    path = bench.corpus(["a"])
    return [path, "-o", path]


def no_output_folder(bench: Bench) -> list[object]:
    return [bench.corpus(["a"]), "-o", bench.home / "nowhere" / "out.parquet"]


def somebody_elses_output(bench: Bench) -> list[object]:
    pq.write_table(pa.table({"x": [1]}), bench.home / "theirs.parquet")
    return [bench.corpus(["a"]), "-o", bench.home / "theirs.parquet"]


def not_even_parquet_output(bench: Bench) -> list[object]:
    (bench.home / "notes.txt").write_text("keep me")
    return [bench.corpus(["a"]), "-o", bench.home / "notes.txt"]


def no_room_for_a_document(bench: Bench) -> list[object]:
    spec = bench.home / "jobs" / "summarize.toml"
    spec.write_text(spec.read_text().replace("max_tokens = 20", "max_tokens = 512"))
    return [bench.corpus(["a"])]


def unknown_engine_option(bench: Bench) -> list[object]:
    bench.write_spec(options="prefil_tokens_per_s = 5")
    return [bench.corpus(["a"])]


CASES: list[tuple[Callable[[Bench], list[object]], int, list[str]]] = [
    (no_corpus, 66, ["missing.parquet is not there", "Check the path"]),
    (no_text_column, 65, ["no text column", "words (string)", "n (int64)", "--text-column words"]),
    (named_column_missing, 65, ["no column 'story'", "text (string)"]),
    (struct_text, 65, ["text column 'text' is struct", "--text-column"]),
    (no_parquet, 65, ["c.parquet is not readable as Parquet"]),
    (empty_file, 65, ["c.parquet is empty (0 bytes)"]),
    (half_a_file, 65, ["corpus.parquet is not readable as Parquet"]),
    (unknown_kind, 65, ["c.docx is of no known kind"]),
    (remote, 65, ["s3://bucket/c.parquet is a remote path"]),
    (unknown_key, 78, ["unknown key 'modle'", "Did you mean 'model'?"]),
    (no_spec, 78, ["there is no job spec", "batchrun init"]),
    (no_model, 78, ["nobody/no-such-model", "local folder"]),
    (output_is_corpus, 73, ["is the corpus itself"]),
    (no_output_folder, 73, ["nowhere, is not there"]),
    (somebody_elses_output, 73, ["theirs.parquet exists and is not a batchrun output"]),
    (not_even_parquet_output, 73, ["notes.txt exists and is not a batchrun output"]),
    (no_room_for_a_document, 78, ["leave no room for a document"]),
    (unknown_engine_option, 69, ["prefil_tokens_per_s", "prefill_tokens_per_s"]),
]


@pytest.mark.parametrize(("make", "code", "said"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_bad_input(
    make: Callable[[Bench], list[object]],
    code: int,
    said: list[str],
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its code, its message, the next action, and the same in the JSON line; no traceback."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    result = bench.submit(*make(bench))
    assert code == result.code, result.err
    for words in said:
        assert words in result.err
    assert "→" in result.err
    assert "Traceback" not in result.err
    assert [code, "failed"] == [result.json["exit_code"], result.json["state"]]


def test_what_is_refused_is_not_touched(bench: Bench) -> None:
    """A file that is not ours, and the corpus, stay as they are."""
    arguments = somebody_elses_output(bench)
    before = [Path(str(arguments[0])).read_bytes(), (bench.home / "theirs.parquet").read_bytes()]
    bench.submit(*arguments)
    bench.submit(arguments[0], "-o", arguments[0])
    assert before == [Path(str(arguments[0])).read_bytes(), (bench.home / "theirs.parquet").read_bytes()]


@pytest.mark.parametrize(
    "words",
    [
        ["submit"],
        ["submit", "a", "--limit", "0"],
        ["frobnicate"],
        ["submit", "a", "--max-error-rate", "2"],
        ["--bad"],
    ],
    ids=" ".join,
)
def test_usage_is_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What the command line does not take."""
    from batchrun.cli.main import code_of

    assert 2 == code_of(words)
    assert "Usage" in capsys.readouterr().err


def test_a_machine_that_resolves_auto_differently_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `auto` was at the first run is frozen: 78 elsewhere, unless it is accepted in words."""
    from batchrun import engines

    spec = bench.home / "jobs" / "summarize.toml"
    spec.write_text(spec.read_text().replace('kind = "lead"', 'kind = "auto"'))
    monkeypatch.setattr(engines, "resolve_kind", lambda kind: "lead")
    assert 0 == bench.submit(bench.corpus(texts(2))).code
    monkeypatch.setattr(engines, "resolve_device_and_dtype", lambda kind, dtype: ("cuda", "bfloat16"))
    path = bench.corpus(texts(3))
    refused = bench.submit(path)
    assert 78 == refused.code
    assert "was begun with lead in none on cpu" in refused.err
    assert "lead in bfloat16 on cuda" in refused.err
    assert "--accept-engine" in refused.err
    assert 0 == bench.submit(path, "--accept-engine").code


def test_a_bug_is_70_with_a_traceback(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody foresaw is said to be a bug of batchrun."""

    def explode(*_: object) -> None:
        raise struct.error("nobody foresaw this")

    monkeypatch.setattr("batchrun.runner.publish_plan", explode)
    result = bench.run("submit", bench.corpus(texts(1)))
    assert 70 == result.code
    assert "nobody foresaw this" in result.err
    assert "this is a bug" in result.err


def test_a_command_that_can_not_be_imported_is_70(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation that lacks a part is told as a bug, not as a crash of Python."""
    monkeypatch.setitem(COMMANDS, "missing", "it has no module")
    result = bench.run("missing", "--json")
    assert 70 == result.code
    assert "this is a bug" in result.err


def test_a_full_disk_is_74(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """No space left: resumable, and nothing of the summaries before is lost."""
    path = bench.corpus(texts(5))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("batchrun.store.segments.write", full)
        result = bench.submit(path)
    assert 74 == result.code
    assert "No space left on device" in result.err
    assert 0 == bench.submit(path).code


def test_a_disk_without_room_is_said_before_the_model_is_loaded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """74, with what there is and what is needed; the same submit goes on when there is room."""
    corpus = bench.corpus(texts(5))
    usage = shutil.disk_usage
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: SimpleNamespace(total=1 << 30, used=1 << 30, free=100)
    )
    done = bench.submit(corpus)
    assert 74 == done.code
    assert "has 0.000 MB free, and some 0.003 MB are to be written" in done.err
    assert "loading the model" not in done.err
    monkeypatch.setattr(shutil, "disk_usage", usage)
    assert 0 == bench.submit(corpus).code


def full_disk(tmp_path: Path, mebibytes: int) -> Path:
    """A file system of so many MiB; skips where none can be mounted."""
    folder = tmp_path / "small"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    return folder


def test_a_disk_that_fills_ends_resumable(tmp_path: Path, bench: Bench) -> None:
    """The workspace on a small tmpfs, full in the middle of the run: 74, nothing damaged, and when there is room the
    same submit goes on and every row is there once.
    """
    small = full_disk(tmp_path, 8)
    try:
        bench.home = small / "home"
        (bench.home / "jobs").mkdir(parents=True)
        bench.write_spec("prefill_tokens_per_s = 2000")
        corpus = bench.corpus(texts(200))
        process = bench.start("submit", corpus, "--json")
        deadline = time.monotonic() + 60
        while not bench.segments():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        filler = small / "filler"
        with suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(b"\0" * 4096)
                file.flush()
        _, err = process.communicate(timeout=60)
        assert 74 == process.returncode, err
        assert "No space left on device" in err
        filler.unlink()
        bench.write_spec()
        again = bench.submit(corpus)
        assert [0, 200] == [again.code, again.json["rows"]["ok"]], again.err
        assert again.json["rows"]["reused"] > 0
        assert 0 == bench.run("verify", again.json["job_id"]).code
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_run_that_can_not_begin_gives_its_lock_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fails at the first record; the next submit of the same process runs."""
    corpus = bench.corpus(texts(2))
    with monkeypatch.context() as failing:
        failing.setattr(
            "batchrun.runner.next_number", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error"))
        )
        assert 74 == bench.submit(corpus).code
    assert 0 == bench.submit(corpus).code


def test_nobody_reads_the_json(bench: Bench) -> None:
    """The exit code is the run's."""
    corpus = bench.corpus(texts(2))
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "batchrun", "submit", str(corpus), "--json", "--home", str(bench.home)]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert 0 == done.returncode, done.stderr
