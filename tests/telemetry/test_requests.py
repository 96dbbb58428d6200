"""Request telemetry: what a row says, and what is left of a run that was killed."""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from batchrun import atomic_file
from batchrun.keys import DOCUMENT, MERGE, PART
from batchrun.planning.buckets import labels
from batchrun.records import Completion, ErrorType, FinishReason, Observation, RequestTimes
from batchrun.telemetry import requests
from batchrun.telemetry.requests import SCHEMA, RequestLog, join_parts
from tests.commands import Bench, texts
from tests.worker.test_worker import HeldEngine, finish, make_worker

EDGES = (16, 1024)
STARTED = 100.0
TIMES = RequestTimes(
    queued_at=10.0, scheduled_at=10.5, first_token_at=12.0, last_token_at=20.0, itl_p50=0.25, itl_p95=0.75
)


def observed(number: int, times: RequestTimes | None = None, input_tokens: int = 20) -> Observation:
    return Observation(
        key=number.to_bytes(16, "big"),
        document_key=None,
        stage=DOCUMENT,
        attempt=1,
        running=3,
        finished_at=STARTED + number,
        completion=Completion(
            request_id=str(number),
            token_ids=[7] * number,
            finish_reason=FinishReason.STOP,
            input_tokens=input_tokens,
            times=times,
        ),
    )


def make_log(folder: Path, run_id: str = "run") -> RequestLog:
    return RequestLog(folder, run_id, STARTED, partial(labels, EDGES))


def written(folder: Path) -> list[dict[str, Any]]:
    """All rows of a folder, as a person would read them."""
    tables = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    assert all(table.schema.equals(SCHEMA) for table in tables)
    return [row for table in tables for row in table.to_pylist()]


def numbers(folder: Path) -> list[int]:
    return [row["output_tokens"] for row in written(folder)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_row_has_the_times_in_milliseconds(tmp_path: Path) -> None:
    """Queue = scheduled − queued, prefill = first − scheduled, ttft = both, decode = last − first."""
    preempted = replace(TIMES, num_preemptions=2)
    with make_log(tmp_path) as log:
        log.observe([observed(5, preempted, input_tokens=16)])
    [row] = written(tmp_path)
    assert {
        "key": (5).to_bytes(16, "big"),
        "document_key": None,
        "stage": "document",
        "attempt": 1,
        "slice": 0,
        "bucket": "16–1K",
        "input_tokens": 16,
        "output_tokens": 5,
        "cached_tokens": 0,
        "finish_reason": "stop",
        "error_type": None,
        "queue_ms": 500.0,
        "prefill_ms": 1500.0,
        "ttft_ms": 2000.0,
        "decode_ms": 8000.0,
        "itl_p50": 250.0,
        "itl_p95": 750.0,
        "running": 3,
        "preemptions": 2,
        "finished_at": 5.0,
    } == row


def test_what_the_engine_does_not_say_is_null(tmp_path: Path) -> None:
    """Never a zero; buckets are told apart by input tokens; an error has its type."""
    failed = observed(2, input_tokens=1024)
    done = replace(
        failed.completion, finish_reason=FinishReason.ERROR, error_type=ErrorType.ENGINE_ERROR, error="no"
    )
    with make_log(tmp_path) as log:
        log.observe([observed(1, input_tokens=15), replace(failed, completion=done, attempt=3)])
        log.observe([observed(3, replace(TIMES, itl_p50=None, itl_p95=None))])
    first, second, third = written(tmp_path)
    unknown = ["queue_ms", "prefill_ms", "ttft_ms", "decode_ms", "itl_p50", "itl_p95", "preemptions"]
    assert {None} == {row[name] for row in (first, second) for name in unknown}
    assert [None, None, 500.0] == [third["itl_p50"], third["itl_p95"], third["queue_ms"]]
    assert ["0–16", "1K+", "16–1K"] == [row["bucket"] for row in (first, second, third)]
    assert ["error", "engine_error", 3] == [
        second[name] for name in ("finish_reason", "error_type", "attempt")
    ]


def test_a_run_that_is_killed_leaves_parts_and_the_next_joins_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most `PART_ROWS` rows wait; more than that many are on disk, whole, before the run ends."""
    monkeypatch.setattr(requests, "PART_ROWS", 4)
    log = make_log(tmp_path, "killed")
    log.observe([observed(number) for number in range(10)])
    assert ["killed.part-00000.parquet", "killed.part-00001.parquet"] == names(tmp_path)
    assert list(range(8)) == numbers(tmp_path)
    join_parts(tmp_path, "next")
    assert ["killed.parquet"] == names(tmp_path)
    assert list(range(8)) == numbers(tmp_path)
    join_parts(tmp_path, "next")
    assert list(range(8)) == numbers(tmp_path)


def test_what_waits_long_is_written_at_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow run loses `PART_SECONDS`, not ten thousand requests."""
    log = make_log(tmp_path)
    log.observe([observed(1)])
    assert [] == names(tmp_path)
    monkeypatch.setattr(requests, "PART_SECONDS", 0.0)
    log.observe([observed(2)])
    assert [1, 2] == numbers(tmp_path)
    log.close()
    assert [1, 2] == numbers(tmp_path)


def test_small_parts_make_large_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 25 parts of two rows, with ten rows to a group; each run has a file of its own."""
    monkeypatch.setattr(requests, "PART_ROWS", 2)
    monkeypatch.setattr(requests, "JOINED_ROWS", 10)
    for run_id in ("one", "two"):
        with make_log(tmp_path, run_id) as log:
            log.observe([observed(number) for number in range(50)])
    join_parts(tmp_path, "next")
    assert ["one.parquet", "two.parquet"] == names(tmp_path)
    assert 5 == pq.ParquetFile(tmp_path / "one.parquet").num_row_groups
    assert [*range(50), *range(50)] == numbers(tmp_path)


def test_killed_between_the_joined_file_and_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row is doubled by the next join."""
    with make_log(tmp_path) as log:
        log.observe([observed(number) for number in range(3)])
    with monkeypatch.context() as patch:
        patch.setattr(atomic_file, "remove", lambda _: None)
        join_parts(tmp_path, "next")
    assert 2 == len(names(tmp_path))
    join_parts(tmp_path, "next")
    assert ["run.parquet"] == names(tmp_path)
    assert list(range(3)) == numbers(tmp_path)


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-40], lambda data: b"no Parquet"])
def test_a_damaged_part_ends_no_run(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """It is left where it is, with the others of its run; other runs are joined."""
    for run_id in ("bad", "good"):
        with make_log(tmp_path, run_id) as log:
            log.observe([observed(1)])
    bad = tmp_path / "bad.part-00000.parquet"
    bad.write_bytes(damage(bad.read_bytes()))
    join_parts(tmp_path, "next")
    assert [bad.name, "good.parquet"] == names(tmp_path)


def test_the_worker_observes_each_request_once() -> None:
    """With its call, its attempt and what ran beside it; an aborted one, too, which has no row."""

    class Aborting(HeldEngine):
        def complete(self, request: Any) -> Completion:
            done = super().complete(request)
            return (
                replace(done, finish_reason=FinishReason.ABORT) if int(request.request_id, 16) == 3 else done
            )

    seen: list[Observation] = []
    rows: list[Any] = []
    worker = make_worker(Aborting(), 20, rows)
    worker._observe = seen.extend
    worker.start()
    finish(worker)
    assert [number.to_bytes(16, "big") for number in range(20)] == sorted(each.key for each in seen)
    assert 19 == len(rows)
    assert {each.key.hex() for each in seen} == {each.completion.request_id for each in seen}
    assert [FinishReason.ABORT] == [
        each.completion.finish_reason for each in seen if each.key == (3).to_bytes(16, "big")
    ]
    assert {1} == {each.attempt for each in seen}
    assert 1 <= min(each.running for each in seen) <= max(each.running for each in seen) <= 12
    moments = [each.finished_at for each in seen]
    assert all(before <= after for before, after in itertools.pairwise(moments))


def test_a_full_disk_ends_the_run_with_what_is_finished_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """74, and nothing is computed again."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(RequestLog, "_write", full)
        ended = bench.submit(bench.corpus(texts(5)))
    assert 74 == ended.code
    assert "No space left on device" in ended.err
    again = bench.submit(bench.home / "corpus.parquet")
    assert [0, 5] == [again.code, again.json["rows"]["ok"]]
    assert 0 == again.json["rows"]["computed"]


def request_rows(bench: Bench) -> list[dict[str, Any]]:
    [folder] = bench.home.glob("checkpoints/*/seed-0/corpora/*/requests")
    return written(folder)


def test_a_run_has_a_row_for_each_call(bench: Bench) -> None:
    """Documents, parts and merges, under their keys and stages; nothing new to compute adds nothing."""
    spec = bench.home / "jobs" / "summarize.toml"
    spec.write_text(spec.read_text().replace('policy = "fail"', 'policy = "map_reduce"'))
    long = " ".join(f"Sentence {number} of a long document." for number in range(300))
    done = bench.submit(bench.corpus([*texts(7), long, texts(7)[0]]))
    assert 0 == done.code, done.err
    rows = request_rows(bench)
    output = bench.output()
    keys = {bytes.fromhex(row["input_hash"]) for row in output}
    documents = [row for row in rows if row["stage"] == DOCUMENT]
    nested = [row for row in rows if row["stage"] != DOCUMENT]
    [whole] = [bytes.fromhex(row["input_hash"]) for row in output if row["num_parts"] > 1]
    assert keys - {whole} == {row["key"] for row in documents}
    assert 7 == len(documents)
    assert {PART, MERGE} == {row["stage"] for row in nested}
    assert {whole} == {row["document_key"] for row in nested}
    assert done.json["tokens"]["input"] == sum(row["input_tokens"] for row in rows)
    assert done.json["tokens"]["output"] == sum(row["output_tokens"] for row in rows)
    assert {None} == {row[name] for row in rows for name in ("queue_ms", "ttft_ms", "itl_p95")}
    assert 0 < min(row["finished_at"] for row in rows) <= max(row["finished_at"] for row in rows)
    assert max(row["finished_at"] for row in rows) < done.json["seconds"]["total"]
    [file] = bench.home.glob("checkpoints/*/seed-0/corpora/*/requests/*")
    assert f"{done.json['run_id']}.parquet" == file.name
    assert 0 == bench.submit(bench.home / "corpus.parquet").code
    assert [file] == list(file.parent.iterdir())


def test_a_run_joins_what_a_killed_one_left(bench: Bench) -> None:
    """The next submit makes one file of its parts, and removes what was half written."""
    done = bench.submit(bench.corpus(texts(5)))
    [file] = bench.home.glob("checkpoints/*/seed-0/corpora/*/requests/*")
    file.rename(file.with_name(f"{done.json['run_id']}.part-00000.parquet"))
    (file.parent / f".tmp-{done.json['run_id']}-abcd").write_bytes(b"half")
    assert 0 == bench.submit(bench.home / "corpus.parquet").code
    assert [file] == list(file.parent.iterdir())
    assert 5 == len(request_rows(bench))
