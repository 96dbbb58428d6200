"""Finding a run, and its requests by length and concurrency."""

import shutil
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrun.errors import ConfigError, DamageError, UsageError
from batchrun.insight.evidence import read_evidence
from batchrun.insight.facts import find_run, newer_runs, run_that_computed, runs_of_job
from batchrun.insight.percentiles import LENGTHS, concurrency_label, percentiles
from batchrun.telemetry.requests import SCHEMA
from batchrun.workspace import Workspace
from tests.commands import Bench, texts


def test_a_run_is_found_by_its_id_and_a_job_by_its_newest_run(bench: Bench) -> None:
    """By any beginning that is the only one."""
    corpus = bench.corpus(texts(6))
    ids = [bench.submit(corpus, "--limit", "3", "-o", bench.home / "a.parquet").json["run_id"]]
    ids.append(bench.submit(corpus, "--limit", "3", "-o", bench.home / "a.parquet").json["run_id"])
    workspace = Workspace(home=bench.home)
    assert ids[0] == find_run(workspace, ids[0]).record.run_id
    newest = find_run(workspace, "summarize")
    assert ids[1] == newest.record.run_id
    assert ids == [facts.record.run_id for facts in runs_of_job(newest)]
    with pytest.raises(ConfigError, match="ambiguous"):
        find_run(workspace, "20")
    with pytest.raises(ConfigError, match="no job 'nobody'"):
        find_run(workspace, "nobody")


def test_a_job_stands_for_its_newest_run_that_computed(bench: Bench) -> None:
    """Over all of its corpora; a run's own id stands for that run, and one that goes on for itself."""
    corpus = bench.corpus(texts(6))
    computed = bench.submit(corpus).json["run_id"]
    idle = bench.submit(bench.corpus(texts(3), "less.parquet")).json["run_id"]
    workspace = Workspace(home=bench.home)
    assert computed == run_that_computed(workspace, "summarize").record.run_id
    assert idle == run_that_computed(workspace, idle).record.run_id
    assert [idle] == [run.run_id for run in newer_runs(find_run(workspace, computed))]
    compared = bench.run("compare", "summarize", computed, "--json").json
    assert [computed] * 2 == [compared[side]["name"] for side in ("a", "b")]


def test_what_no_run_can_be_found_by(bench: Bench) -> None:
    """An empty word; a name in a workspace without jobs; a run whose record is damaged, by its id and by its job's."""
    workspace = Workspace(home=bench.home)
    with pytest.raises(UsageError, match="an empty word is no id"):
        find_run(workspace, "")
    with pytest.raises(ConfigError, match=r"there is no job 'nobody'.*\nSubmit a corpus first"):
        find_run(workspace, "nobody")
    run_id = bench.submit(bench.corpus(texts(2))).json["run_id"]
    [record] = bench.home.glob(f"checkpoints/*/*/corpora/*/runs/{run_id}.json")
    record.write_bytes(record.read_bytes()[:-9])
    for given in (run_id, "summarize"):
        with pytest.raises(DamageError, match=f"run record {record} is damaged"):
            find_run(workspace, given)


def test_percentiles_are_by_length_and_by_concurrency(bench: Bench) -> None:
    """Each request counts once by length, once by concurrency and once by both."""
    bench.write_spec("prefill_tokens_per_s = 100000\ndecode_tokens_per_s = 2000")
    bench.submit(bench.corpus(texts(30)))
    facts = find_run(Workspace(home=bench.home), "summarize")
    groups = percentiles(facts.requests, facts.scratch)
    [by_length] = [group for group in groups if group.concurrency is None]
    assert (LENGTHS[0], 30) == (by_length.length, by_length.num_requests)
    assert 18 < by_length.output_tokens <= 20
    assert by_length.tpot_ms is not None
    assert 0 < by_length.tpot_ms.p50 <= by_length.tpot_ms.p95 <= by_length.tpot_ms.p99
    by_concurrency = [group for group in groups if group.length is None]
    assert 30 == sum(group.num_requests for group in by_concurrency)
    assert percentiles([], facts.scratch) == []


def test_a_night_of_requests_takes_no_more_memory(bench: Bench) -> None:
    """The database has 96 MB for them: percentiles are those of the values to 2 %, and nothing is called damaged."""
    bench.submit(bench.corpus(texts(3)))
    facts = find_run(Workspace(home=bench.home), "summarize")
    number, random = 400_000, np.random.default_rng(1)
    times = {
        name: random.lognormal(3, 1, number)
        for name in ("queue_ms", "prefill_ms", "decode_ms", "itl_p50", "itl_p95")
    }
    counts: dict[str, npt.NDArray[Any]] = {
        "input_tokens": random.integers(100, 40_000, number),
        "output_tokens": random.integers(2, 200, number),
        "cached_tokens": np.zeros(number, np.int64),
        "running": random.integers(1, 256, number, dtype=np.int32),
        "finished_at": np.arange(number) / 100,
    }
    columns = times | counts | {"ttft_ms": times["queue_ms"] + times["prefill_ms"]}
    constants = {
        "stage": "document",
        "attempt": 1,
        "slice": 0,
        "bucket": "0–1K",
        "finish_reason": "stop",
        "preemptions": 0,
    }
    keys = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), number, [None, pa.py_buffer(random.bytes(16 * number))]
    )
    table = pa.table(
        [
            keys if field.name == "key"
            else pa.array(columns[field.name], field.type) if field.name in columns
            else pa.repeat(pa.scalar(constants.get(field.name), field.type), number)
            for field in SCHEMA
        ],
        schema=SCHEMA,
    )  # fmt: skip
    pq.write_table(table, facts.requests[0])
    groups = percentiles(facts.requests, facts.scratch)
    [longest] = [group for group in groups if group.length == LENGTHS[3] and group.concurrency is None]
    assert longest.prefill_ms is not None
    found = (longest.prefill_ms.p50, longest.prefill_ms.p95, longest.prefill_ms.p99)
    wanted = np.quantile(times["prefill_ms"][counts["input_tokens"] >= 32768], [0.5, 0.95, 0.99])
    assert pytest.approx(wanted, rel=0.02) == found
    evidence = read_evidence(facts)
    assert evidence.requests is not None
    assert (
        number
        == evidence.requests.num_requests
        == evidence.beside.num_requests + int((counts["output_tokens"] < 16).sum())
    )


def test_requests_are_counted_once_where_parts_were_joined(bench: Bench) -> None:
    """A run that was killed between the two has left the parts beside the file that they are in."""
    bench.submit(bench.corpus(texts(3)))
    facts = find_run(Workspace(home=bench.home), "summarize")
    [whole] = facts.requests
    shutil.copy(whole, whole.with_name(f"{facts.record.run_id}.part-00000.parquet"))
    assert [whole] == facts.requests
    whole.unlink()
    assert 1 == len(facts.requests)


@pytest.mark.parametrize(("power", "label"), [(0, "1"), (1, "2"), (2, "3–4"), (3, "5–8")])
def test_concurrency_is_told_by_doubling(power: int, label: str) -> None:
    assert label == concurrency_label(power)
