"""The rules of the diagnosis, on evidence that is made up: when each speaks, and which action it names."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from batchrun.insight.bottlenecks import findings, gaps, verdict
from batchrun.insight.evidence import Beside, Evidence, Requests
from batchrun.insight.finding import Finding
from batchrun.insight.percentiles import Group, Quantiles
from batchrun.insight.time_use import TimeUse
from batchrun.profile import Point
from batchrun.run_record import BatchMetrics, RunRecord, RunState, TokenCounts
from batchrun.spec import EngineSpec, JobSpec, OutputSpec
from tests.insight.test_time_use import PROFILE

TIME = TimeUse(
    seconds=1000.0,
    num_intervals=500,
    idle=0.0,
    feeding=0.0,
    tail=0.0,
    reading=0.5,
    writing=0.5,
    basis="timeline",
    growth=0.8,
    full_kv=0.0,
    running=250.0,
    kv_cache_usage=0.6,
    starved_steps=0.0,
)
REQUESTS = Requests(
    num_requests=1000,
    num_timed=1000,
    num_itl=1000,
    input_tokens=1_000_000,
    input_tokens_of_a_token=1000.0,
    held_tokens=1400.0,
    median_input_tokens=900.0,
    median_output_tokens=100.0,
    long_output_tokens=150.0,
    longest_seconds=20.0,
    last_output_tokens=120,
    last_input_tokens=900,
)
BESIDE = Beside(
    num_requests=1000,
    num_beside=400,
    itl_p50=20.0,
    itl_p95=300.0,
    waited_share=0.4,
    prompts_per_ms=0.0005,
    ms_a_prompt=600.0,
    r2=0.7,
    num_long=50,
    long_prefill_ms=800.0,
    long_tokens=16_000.0,
)
HEALTHY = Evidence(
    spec=JobSpec(model="m"),
    kind="vllm",
    device="cuda",
    record=RunRecord(
        job_id="j",
        run_id="r",
        seed=0,
        corpus_id="c",
        corpus=[],
        state=RunState.COMPLETE,
        tokens=TokenCounts(input=1_000_000, output=100_000),
        metrics=BatchMetrics(num_steps=10_000, ceiling_share=0.97),
        limits={"max_num_seqs": 256, "kv_tokens": 100_000, "max_num_batched_tokens": 16_384},
    ),
    time=TIME,
    requests=REQUESTS,
    beside=replace(BESIDE, r2=0.0),
)


def with_time(**changes: Any) -> Evidence:
    return replace(HEALTHY, time=replace(TIME, **changes))


def with_requests(evidence: Evidence = HEALTHY, **changes: Any) -> Evidence:
    return replace(evidence, requests=replace(REQUESTS, **changes))


def with_metrics(evidence: Evidence = HEALTHY, recomputed: int = 0, **changes: Any) -> Evidence:
    record = evidence.record
    tokens = replace(record.tokens, recomputed=recomputed)
    return replace(
        evidence, record=replace(record, metrics=replace(record.metrics, **changes), tokens=tokens)
    )


def with_engine(evidence: Evidence, **changes: Any) -> Evidence:
    return replace(evidence, spec=JobSpec(model="m", engine=EngineSpec(**changes)))


def group(length: str | None, concurrency: str | None, number: int, **medians: float) -> Group:
    quantiles: dict[str, Any] = dict.fromkeys(
        ("queue_ms", "prefill_ms", "ttft_ms", "tpot_ms", "itl_p50", "itl_p95")
    )
    quantiles |= {name: Quantiles(p50=value, p95=value, p99=value) for name, value in medians.items()}
    return Group(
        length=length,
        concurrency=concurrency,
        num_requests=number,
        num_itl=number,
        input_tokens=1000.0,
        output_tokens=50.0,
        **quantiles,
    )


def the_one(evidence: Evidence) -> Finding:
    [found] = findings(evidence)
    return found


def test_a_healthy_run_has_no_finding() -> None:
    """It is told how near it was to its ceiling, or what would say so."""
    assert [] == findings(HEALTHY)
    assert [] == gaps(HEALTHY)
    assert verdict(HEALTHY).endswith("at 97% of the ceiling that its engine's profile gives")
    assert verdict(with_metrics(ceiling_share=None)).endswith("says a profile: batchrun calibrate")


@pytest.mark.parametrize(
    ("evidence", "name", "action"),
    [
        (with_time(reading=0.8, writing=0.2), "prefill", "read on more machines"),
        (with_time(reading=0.2, writing=0.8), "decode", 'set engine.speculation to "ngram"'),
        (with_engine(with_time(reading=0.2, writing=0.8), speculation="ngram"), "decode", "ask for shorter outputs"),
        (with_time(reading=0.2, writing=0.8, growth=0.1), "decode", "raise engine.max_num_seqs from 256 to 512"),
        (
            with_time(reading=0.2, writing=0.8, full_kv=0.9, running=80.0),
            "decode",
            "raise gpu_memory_utilization in [engine.options]: the KV cache holds 80 sequences of 256",
        ),
        (replace(HEALTHY, beside=BESIDE), "interference", "lower engine.max_num_batched_tokens from 16,384 to 512"),
        (with_time(feeding=0.3), "feeding", "lower output.max_tokens"),
        (with_time(feeding=0.3, starved_steps=0.5), "feeding", "put the workspace's buckets/ on a local disk"),
        (with_metrics(padding_share=0.4), "padding", "set buckets.edges to [900, 1024, 8192, 32768]"),
        (
            replace(with_metrics(padding_share=0.4), requests=replace(REQUESTS, median_input_tokens=1000.0)),
            "padding",
            "lower engine.max_num_seqs from 256 to 128: fewer prompts are more alike",
        ),
        (with_time(idle=0.2), "idle", "set own_process = true in [engine.options]"),
        (with_metrics(with_time(idle=0.2), store_wait_seconds=150.0), "idle", "put the workspace's checkpoints/"),
        (with_metrics(with_time(idle=0.2), collector_wait_seconds=150.0), "idle", "leave batchrun a CPU core"),
        (with_time(tail=0.3), "tail", "begin with long documents: submit with --prefer longest"),
        (
            with_requests(with_time(tail=0.3), last_output_tokens=2000),
            "tail",
            "lower output.max_tokens from 2,048 to 192: 95 % of outputs end by 150",
        ),
        (with_metrics(recomputed=500_000, num_slices=800), "recomputation", "raise residency.slice_tokens from 512 to 1,024"),
        (with_metrics(recomputed=500_000, num_engine_deaths=3), "recomputation", "find out why the engine died"),
    ],
)  # fmt: skip
def test_each_names_one_thing_to_do(evidence: Evidence, name: str, action: str) -> None:
    """By what the evidence says of the cause."""
    if "max_tokens" in action:
        evidence = replace(evidence, spec=JobSpec(model="m", output=OutputSpec(max_tokens=2048)))
    found = the_one(evidence)
    assert name == found.name
    assert action in found.action
    assert found.share is not None


def test_a_profile_that_knows_a_better_budget_is_followed() -> None:
    profile = msgspec.structs.replace(PROFILE, batched_tokens=((4096, 1500.0), (16_384, 1000.0)))
    evidence = with_time(reading=0.8, writing=0.2)
    evidence = replace(evidence, record=replace(evidence.record, profile=profile))
    assert "set engine.max_num_batched_tokens from 16,384 to 4,096" in the_one(evidence).action


@pytest.mark.parametrize("tried", [((4096, 1000.5), (16_384, 1000.0)), ((4096, 1500.0),), ()])
def test_a_budget_that_gains_nothing_or_is_not_known_to_is_not_advised(tried: tuple[Point, ...]) -> None:
    """Two measurements differ as much, and a rate that was not measured is none."""
    profile = msgspec.structs.replace(PROFILE, batched_tokens=tried)
    evidence = with_time(reading=0.8, writing=0.2)
    evidence = replace(evidence, record=replace(evidence.record, profile=profile))
    assert "read on more machines" in the_one(evidence).action


@pytest.mark.parametrize(
    ("slice_tokens", "long_output_tokens", "action"),
    [(512, 300.0, "lower engine.max_num_seqs from 256 to 71"), (512, 1000.0, "lower residency.slice_tokens from 512 to 256")],
)  # fmt: skip
def test_preemptions_are_the_cache_s(slice_tokens: int, long_output_tokens: float, action: str) -> None:
    """What was read again for them is their share, and is not told a second time."""
    evidence = with_requests(
        with_metrics(with_time(full_kv=0.5), recomputed=300_000, num_preemptions=400),
        num_preempted=200,
        preempted_tokens=400_000.0,
        long_output_tokens=long_output_tokens,
    )
    found = the_one(evidence)
    assert "kv cache" == found.name
    assert action in found.action
    assert 0.5 * 3 / 13 == pytest.approx(found.share)


def test_few_preemptions_or_a_roomy_cache_are_nothing() -> None:
    preempted = with_requests(with_metrics(num_preemptions=400), num_preempted=200)
    assert [] == findings(preempted)
    assert [] == findings(replace(with_metrics(num_preemptions=4), time=replace(TIME, full_kv=0.9)))


BY_LENGTH = (
    group("0–1K", None, 50, prefill_ms=4000.0, tpot_ms=40.0),
    group("1K–8K", None, 50, prefill_ms=9000.0, tpot_ms=41.0),
)
BY_CONCURRENCY = (
    group("0–1K", "1", 50, prefill_ms=40.0, tpot_ms=10.0),
    group("0–1K", "2", 50, prefill_ms=40.0, tpot_ms=30.0),
)


@pytest.mark.parametrize(
    ("groups", "name"),
    [
        (BY_LENGTH, "prefill"),
        (tuple(replace(each, num_requests=19) for each in BY_LENGTH), None),
        ((BY_LENGTH[0], replace(BY_LENGTH[1], tpot_ms=Quantiles(p50=90.0, p95=90.0, p99=90.0))), None),
        (BY_CONCURRENCY, "decode"),
        (tuple(replace(each, num_requests=19) for each in BY_CONCURRENCY), None),
        ((BY_CONCURRENCY[0], replace(BY_CONCURRENCY[1], length="1K–8K")), None),
    ],
)
def test_without_shares_of_the_time_groups_tell(groups: tuple[Group, ...], name: str | None) -> None:
    """Reading that grows with the input beside intervals that do not; intervals that grow with sequences at the same
    length of input. From 20 requests of a group on.
    """
    evidence = replace(with_time(reading=None, writing=None, basis=""), groups=groups)
    assert [each for each in [name] if each] == [finding.name for finding in findings(evidence)]
    assert [
        "reading and writing went on too evenly to be told apart; with a profile they are: batchrun calibrate"
    ] == gaps(evidence)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_beside": 19},
        {"r2": 0.1},
        {"prompts_per_ms": 0.0001},
        {"long_prefill_ms": 50.0},
    ],
)
def test_long_prompts_are_blamed_on_evidence_alone(changes: dict[str, Any]) -> None:
    """Not of few requests, not where they explain little of the waiting, cost little of it, or fill no long step; nor
    where reading has most of the time anyway.
    """
    assert [] == findings(replace(HEALTHY, beside=replace(BESIDE, **changes)))
    bound = replace(with_time(reading=0.8, writing=0.2), beside=BESIDE)
    assert "prefill" == the_one(bound).name


def test_a_run_as_long_as_its_longest_output_has_no_tail() -> None:
    assert [] == findings(with_requests(with_time(tail=0.5), longest_seconds=950.0))


def test_the_largest_share_comes_first() -> None:
    found = findings(with_metrics(with_time(idle=0.2, feeding=0.0, tail=0.3), padding_share=0.5))
    assert ["tail", "padding", "idle"] == [finding.name for finding in found]


def test_a_padding_share_is_told_where_time_can_not_be_divided() -> None:
    evidence = with_metrics(with_time(reading=None, writing=None), padding_share=0.4)
    assert [("padding", None)] == [(finding.name, finding.share) for finding in findings(evidence)]
    assert [] == findings(with_metrics(evidence, padding_share=0.15))
