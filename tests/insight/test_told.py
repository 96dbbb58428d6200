"""What a diagnosis says: nothing of what is not known, nothing that speaks against itself, and how a run ended."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrun.cli.diagnosis_text import render
from batchrun.insight.bottlenecks import gaps, verdict
from batchrun.insight.evidence import Evidence, read_evidence
from batchrun.insight.facts import find_run
from batchrun.insight.percentiles import Group, percentiles
from batchrun.insight.told import times_table
from batchrun.run_record import PhaseSeconds, RowCounts, RunState
from batchrun.telemetry.requests import SCHEMA
from batchrun.telemetry.timeline import timeline_of
from batchrun.workspace import Workspace
from tests.commands import Bench, texts
from tests.insight.evidences import (
    BY_CONCURRENCY,
    BY_LENGTH,
    HEALTHY,
    group,
    the_one,
    with_engine,
    with_metrics,
    with_record,
    with_time,
)
from tests.insight.test_load import request, written
from tests.insight.test_time_use import PROFILE, timeline

WRITES = with_time(reading=0.2, writing=0.8)
READS = with_time(reading=0.8, writing=0.2)


@pytest.mark.parametrize(
    ("evidence", "action"),
    [
        (with_engine(WRITES, speculation="ngram"), "ask for shorter outputs in prompt.instruction"),
        (with_time(feeding=0.3), "put the workspace's buckets/ on a local disk"),
        (with_time(tail=0.3), "begin with long documents: submit with --prefer longest"),
        (
            with_metrics(padding_share=0.4),
            "lower engine.max_num_seqs from 256 to 128: fewer prompts are more alike",
        ),
        (
            with_metrics(recomputed=500_000, num_slices=800),
            "raise residency.slice_tokens from 512 to 1,024",
        ),
    ],
)
def test_without_requests_an_action_comes_of_what_is_known(evidence: Evidence, action: str) -> None:
    """And no figure is told that would be one of theirs."""
    found = the_one(replace(evidence, requests=None))
    assert action == found.action
    assert "n=0" not in found.evidence
    assert "longest output" not in found.evidence
    assert [
        "there is no telemetry of requests that ended: only what the record and the timeline have is told"
    ] == gaps(replace(evidence, requests=None))


def test_without_times_of_requests_the_longest_output_is_not_told() -> None:
    """The last one is: its tokens are known."""
    requests = HEALTHY.requests
    assert requests is not None
    evidence = replace(
        with_time(tail=0.3), requests=replace(requests, longest_seconds=0.0, num_timed=0, num_outputs=700)
    )
    found = the_one(evidence)
    assert "longest output" not in found.evidence
    assert "wrote 120 tokens, where 100 is the median (n=700 outputs)" in found.evidence


def test_without_requests_the_record_tells_how_long_inputs_are(bench: Bench) -> None:
    """So that the profile's rate of reading is that of the run's prompts, not that of the shortest."""
    assert 0 == bench.submit(bench.corpus(texts(60))).code
    facts = find_run(Workspace(home=bench.home), "summarize")
    rising = np.arange(100)
    pq.write_table(
        timeline(prefill_tokens=100 * rising, decode_tokens=30 * rising),
        timeline_of(facts.paths.timelines, facts.record.run_id),
    )
    profile = msgspec.structs.replace(PROFILE, prefill=((16, 1.0), (256, 100.0)), decode=((1, 10.0),))
    facts = replace(facts, record=replace(facts.record, profile=profile))
    told = read_evidence(facts)
    for path in facts.requests:
        path.unlink()
    left = read_evidence(facts)
    assert None is left.requests
    assert told.time is not None
    assert left.time is not None
    assert told.time.reading == pytest.approx(left.time.reading, abs=0.1)
    assert 0.2 < (left.time.reading or 0.0) < 0.7


def test_slices_of_one_output_are_counted_together_and_failed_requests_not(bench: Bench) -> None:
    """A median over outputs is of so many; a run all of whose requests failed knows as much of them as one without."""
    assert 0 == bench.submit(bench.corpus(texts(5))).code
    facts = find_run(Workspace(home=bench.home), "summarize")
    [path] = facts.requests
    requests = [request(1, slice=0), request(1, slice=1), request(2)]
    pq.write_table(pa.Table.from_pylist(requests, schema=SCHEMA), path)
    found = read_evidence(facts).requests
    assert found is not None
    assert (3, 2) == (found.num_requests, found.num_outputs)
    pq.write_table(pa.Table.from_pylist([request(1, error_type="engine")], schema=SCHEMA), path)
    assert None is read_evidence(facts).requests


def timed(number: int, **times: Any) -> dict[str, Any]:
    return request(number, queue_ms=1.0, ttft_ms=3.0, **times)


def test_a_percentile_is_of_the_requests_that_have_the_time(tmp_path: Path) -> None:
    """An output of one token has no time of an output token after the first, and an engine may not tell a time."""
    requests = [timed(number, prefill_ms=2.0, decode_ms=90.0) for number in range(20)]
    requests += [timed(20 + number, prefill_ms=2.0, output_tokens=1, decode_ms=0.0) for number in range(80)]
    requests += [timed(100 + number) for number in range(3)]
    [found] = [one for one in percentiles(written(tmp_path, *requests), tmp_path) if one.concurrency is None]
    assert (103, 103, 100, 103, 20, 0) == (
        found.num_requests,
        found.num_queue,
        found.num_prefill,
        found.num_ttft,
        found.num_tpot,
        found.num_itl,
    )
    [row] = times_table([found])
    assert ["0–1K", "103", "1.0/1.0/1.0", "2.0/2.0/2.0", "3.0/3.0/3.0", "10/10/-", "-", "-"] == row


@pytest.mark.parametrize(
    ("evidence", "groups", "said"),
    [
        (READS, BY_LENGTH, "with the length of input prefill p50 grows from 4,000 ms (0–1K, n=50) to 9,000 ms (1K–8K, n=50)"),
        (READS, BY_LENGTH, "(TPOT) p50 stays about the same, 40 ms (0–1K, n=50) and 41 ms (1K–8K, n=50)"),
        (WRITES, BY_CONCURRENCY, "p50 grows from 10 ms (0–1K, 1 running, n=50) to 30 ms (0–1K, 2 running, n=50)"),
        (WRITES, BY_LENGTH, "over lengths of input the time of an output token (TPOT) p50 stays about the same"),
        (WRITES, BY_LENGTH, "250 sequences ran at once, and each token took about 1.7 times as long as it does with half as many"),
    ],
)  # fmt: skip
def test_figures_of_groups_are_told_for_a_finding(
    evidence: Evidence, groups: tuple[Group, ...], said: str
) -> None:
    """With the number of requests that each median is of."""
    assert said in the_one(replace(evidence, groups=groups)).evidence


@pytest.mark.parametrize("evidence", [READS, WRITES])
def test_figures_of_groups_that_speak_against_a_finding_are_not_told_for_it(evidence: Evidence) -> None:
    """What has most of the time is named by that alone, with the number of requests."""
    against = (
        group("0–1K", None, 50, prefill_ms=500.0, tpot_ms=10.0),
        group("1K–8K", None, 50, prefill_ms=300.0, tpot_ms=90.0),
        group("0–1K", "1", 50, prefill_ms=40.0, tpot_ms=30.0),
        group("0–1K", "2", 50, prefill_ms=40.0, tpot_ms=10.0),
    )
    found = the_one(replace(evidence, groups=against))
    assert "p50" not in found.evidence
    assert "takes 80% of 1,000 s (by the timeline)" in found.evidence


SHORT = replace(HEALTHY, time=None, requests=None)


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        (SHORT, "the run was too short to tell what held it up"),
        (
            with_record(SHORT, seconds=PhaseSeconds(running=3600.0)),
            "too little is left of the run's telemetry to tell what held it up",
        ),
        (
            with_time(reading=None, writing=None),
            "no time was lost to anything else than reading and writing; which of them has most of it is not known",
        ),
        (
            with_record(SHORT, state=RunState.FAILED, stop_reason="the engine died"),
            "failed (the engine died): the run has computed too little to tell what held it up",
        ),
        (
            with_record(SHORT, state=RunState.RUNNING),
            "running: the run has computed too little to tell what held it up",
        ),
        (
            with_record(with_metrics(SHORT, num_steps=0), rows=RowCounts(total=9, skipped=2, ok=6, failed=1)),
            "there was nothing to compute: of 9 rows 2 were skipped, 6 had a summary already, 1 had failed for good",
        ),
    ],
)
def test_of_a_run_that_tells_nothing_is_said_how_it_ended(evidence: Evidence, said: str) -> None:
    assert said == verdict(evidence)


def test_the_state_and_its_reason_come_first() -> None:
    """A run that was cut off has findings, too."""
    stopped = with_record(HEALTHY, state=RunState.INTERRUPTED, stop_reason="deadline", engine="vllm")
    assert "job j, run r, interrupted (deadline): 1,000 requests on vllm" == render(stopped).split("\n")[0]


def test_where_nothing_was_to_be_computed_nothing_is_missing(bench: Bench) -> None:
    """A corpus of empty rows is no night that was too short."""
    assert 0 == bench.submit(bench.corpus(["", " ", None])).code
    said = bench.run("report", "summarize", "--diagnose").out
    assert ", complete: 0 requests\n\nthere was nothing to compute: of 3 rows 3 were skipped" in said
    assert "not told" not in said
