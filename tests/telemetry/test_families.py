"""Two families of numbers, never mixed: what describes the job, and what describes single requests."""

import json
from collections.abc import Iterator
from typing import Any

from batchrun.records import RequestTimes
from batchrun.run_record import BatchMetrics, PhaseSeconds, RowCounts, RunRecord, TokenCounts
from batchrun.telemetry.requests import SCHEMA
from tests.commands import Bench, texts
from tests.test_imports import all_imports, modules

OF_REQUESTS = {"queue_ms", "prefill_ms", "ttft_ms", "decode_ms", "itl_p50", "itl_p95"}
WORDS = ("queue", "ttft", "itl", "_ms", "p50", "p90", "p95", "p99", "percentile", "latency")
"""Parts of names that only request telemetry may have."""
TELLERS = (
    "progress",
    "telemetry.run_records",
    "telemetry.gpus",
    "cli.status",
    "cli.outcome",
    "cli.console",
    "reporter",
)
"""What makes run records, `status`, the progress and the summary line."""


def fields(*records: type) -> set[str]:
    return {name for record in records for name in record.__annotations__}


def names_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from names_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from names_in(inner)


def mixed(names: Iterator[str] | set[str]) -> list[str]:
    return [name for name in names if name in OF_REQUESTS or any(word in name for word in WORDS)]


def test_request_telemetry_has_its_names() -> None:
    """The check below looks for something that is there."""
    assert set(SCHEMA.names) >= OF_REQUESTS
    assert OF_REQUESTS == set(mixed(iter(SCHEMA.names)))


def test_run_records_have_no_number_of_a_request() -> None:
    """No time of a request, and no percentile of anything."""
    of_the_job = fields(BatchMetrics, RunRecord, RowCounts, TokenCounts, PhaseSeconds)
    assert [] == mixed(of_the_job)
    assert not of_the_job & fields(RequestTimes) - {"num_preemptions"}


def test_request_telemetry_has_no_number_of_the_job() -> None:
    """No column is called like a batch metric, so that no query takes one for the other."""
    assert not fields(BatchMetrics) & set(SCHEMA.names)


def test_what_a_run_says_has_no_number_of_a_request(bench: Bench) -> None:
    """The status, the summary line, its JSON, and what is told on the way."""
    done = bench.submit(bench.corpus(texts(5)))
    status = bench.run("status", "--json")
    [record] = bench.home.glob("checkpoints/*/seed-0/corpora/*/runs/*.json")
    for said in (done.json, status.json, json.loads(record.read_bytes())):
        assert [] == mixed(names_in(said))
    assert "gpu_utilization" in set(names_in(status.json))
    shown = bench.run("status", done.json["job_id"]).out
    for text in (done.err, status.err, shown):
        assert not [word for word in WORDS if word in text.split()]
        assert not [name for name in OF_REQUESTS if name in text]


def test_who_tells_of_the_job_does_not_know_request_telemetry() -> None:
    """Only the wiring imports it: neither directly nor on the way does anyone who makes records or status."""
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for found in all_imports():
        graph[found.module].add(found.imported.removeprefix("batchrun."))
    assert {"runner"} == {name for name, imported in graph.items() if "telemetry.requests" in imported}
    for teller in TELLERS:
        assert teller in graph
        reached, left = set[str](), [teller]
        while left:
            name = left.pop()
            if name not in reached:
                reached.add(name)
                left += graph.get(name, ())
        assert "telemetry.requests" not in reached, teller
