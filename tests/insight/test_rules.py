"""The rules of the diagnosis, on evidence that is made up: when each speaks, and which action it names."""

import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from batchrun.insight.bottlenecks import findings, gaps, verdict
from batchrun.insight.evidence import Evidence
from batchrun.insight.percentiles import Group, Quantiles
from batchrun.profile import Point
from batchrun.shard import Shard
from batchrun.spec import JobSpec, OutputSpec
from tests.insight.evidences import (
    BESIDE,
    BY_CONCURRENCY,
    BY_LENGTH,
    HEALTHY,
    REQUESTS,
    TIME,
    the_one,
    with_engine,
    with_metrics,
    with_record,
    with_requests,
    with_time,
)
from tests.insight.test_time_use import PROFILE


def test_a_healthy_run_has_no_finding() -> None:
    """It is told how near it was to its ceiling, or what would say so."""
    assert [] == findings(HEALTHY)
    assert [] == gaps(HEALTHY)
    assert verdict(HEALTHY).endswith("at 97% of the ceiling that its engine's profile gives")
    assert verdict(with_metrics(ceiling_share=None)).endswith("says a profile: batchrun calibrate")


@pytest.mark.parametrize(
    ("evidence", "name", "action"),
    [
        (with_time(reading=0.8, writing=0.2), "prefill", "read on more machines: submit with --shard 1/2 on one"),
        (with_record(with_time(reading=0.8, writing=0.2), shard=Shard(number=2, of=3)), "prefill", "submit in 6 shards, not 3"),
        (with_time(reading=0.2, writing=0.8), "decode", 'set engine.speculation to "ngram"'),
        (with_engine(with_time(reading=0.2, writing=0.8), speculation="ngram"), "decode", "ask for shorter outputs"),
        (with_time(reading=0.2, writing=0.8, growth=0.1), "decode", "raise engine.max_num_seqs from 256 to 512"),
        (
            with_time(reading=0.2, writing=0.8, full_kv=0.9, running=80.0),
            "decode",
            "raise gpu_memory_utilization in [engine.options]: the KV cache holds 80 sequences of the 256",
        ),
        (replace(HEALTHY, beside=BESIDE), "interference", "lower engine.max_num_batched_tokens from 16,384 to 512"),
        (with_time(feeding=0.3), "feeding", "lower output.max_tokens"),
        (with_time(feeding=0.3, starved_steps=0.5), "feeding", "put the workspace's buckets/ on a local disk"),
        (
            with_metrics(with_time(feeding=0.3, starved_steps=0.5), cpu_seconds={"feeder": 200.0}),
            "feeding",
            "leave batchrun a CPU core beside the engine's",
        ),
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
            "lower output.max_tokens from 2,048 to 192: 95% of outputs end by 150",
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
    assert not re.search(r", (or|and) ", found.action)
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
    found = the_one(replace(evidence, kind="lead"))
    assert "kv cache" == found.name
    assert action in found.action
    assert 0.5 * 3 / 13 == pytest.approx(found.share)


def test_what_vllm_reads_again_for_preemptions_is_theirs_though_it_is_not_counted() -> None:
    """It counts a prompt when it is first read alone; what slices read again is counted, and is not the cache's."""
    preempted = with_requests(
        with_metrics(with_time(full_kv=0.5), num_preemptions=400),
        num_preempted=200,
        preempted_tokens=600_000.0,
    )
    found = the_one(preempted)
    assert "kv cache" == found.name
    assert 0.5 * 6 / 16 == pytest.approx(found.share)
    assert "up to 38% of the prompt tokens read were read again for it" in found.evidence
    sliced = findings(with_metrics(preempted, recomputed=400_000, num_slices=800))
    assert ["kv cache", "recomputation"] == [found.name.value for found in sliced]
    assert [0.15, 0.1] == pytest.approx([found.share for found in sliced])


def test_a_cache_whose_size_is_not_known_halves_the_sequences() -> None:
    preempted = with_requests(
        with_metrics(with_time(full_kv=0.5), num_preemptions=400),
        num_preempted=200,
        preempted_tokens=600_000.0,
    )
    unknown = with_record(preempted, limits={"max_num_seqs": 256})
    assert "lower engine.max_num_seqs from 256 to 128" == the_one(unknown).action


def test_few_preemptions_or_a_roomy_cache_are_nothing() -> None:
    preempted = with_requests(with_metrics(num_preemptions=400), num_preempted=200)
    assert [] == findings(preempted)
    assert [] == findings(replace(with_metrics(num_preemptions=4), time=replace(TIME, full_kv=0.9)))


@pytest.mark.parametrize(
    ("groups", "name"),
    [
        (BY_LENGTH, "prefill"),
        (tuple(replace(each, num_prefill=19) for each in BY_LENGTH), None),
        ((BY_LENGTH[0], replace(BY_LENGTH[1], tpot_ms=Quantiles(p50=90.0, p95=90.0, p99=90.0))), None),
        (BY_CONCURRENCY, "decode"),
        (tuple(replace(each, num_tpot=19) for each in BY_CONCURRENCY), None),
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
    undivided = with_time(reading=None, writing=None, basis="")
    assert "prefill" == the_one(replace(undivided, beside=BESIDE, groups=BY_LENGTH)).name


@pytest.mark.parametrize(("waited", "name"), [(0.3, "decode"), (0.6, "interference")])
@pytest.mark.parametrize("is_divided", [True, False])
def test_of_writing_and_waiting_for_long_prompts_the_larger_is_named(
    waited: float, name: str, is_divided: bool
) -> None:
    """Of the time in which outputs are written, whether its share of the run is known or groups tell it."""
    time = {"reading": 0.2, "writing": 0.8} if is_divided else {"reading": None, "writing": None, "basis": ""}
    beside = replace(BESIDE, waited_share=1.0, prompts_per_ms=waited / BESIDE.ms_a_prompt)
    assert name == the_one(replace(with_time(**time), beside=beside, groups=BY_CONCURRENCY)).name


def test_waiting_for_long_prompts_has_the_share_of_writing_that_it_takes() -> None:
    """Of the run, where that is known; the share of the time in which outputs are written is among the figures."""
    found = the_one(replace(with_time(reading=0.6, writing=0.4), beside=BESIDE))
    assert 0.3 * 0.4 == pytest.approx(found.share)
    assert "in all 30% of the time in which they wrote" in found.evidence
    assert [] == findings(replace(with_time(reading=0.6, writing=0.3), beside=BESIDE))
    undivided = with_time(reading=None, writing=None, basis="")
    assert None is the_one(replace(undivided, beside=BESIDE)).share


def test_a_run_as_long_as_its_longest_output_has_no_tail() -> None:
    assert [] == findings(with_requests(with_time(tail=0.5), longest_seconds=950.0))


def test_the_largest_share_comes_first() -> None:
    found = findings(with_metrics(with_time(idle=0.2, feeding=0.0, tail=0.3), padding_share=0.5))
    assert ["tail", "padding", "idle"] == [finding.name for finding in found]


def test_padding_and_what_is_read_again_are_told_once() -> None:
    """What is read again is of the prompt tokens without padding: with what is useful they are all of the reading."""
    evidence = with_metrics(
        with_time(reading=0.9, writing=0.1), recomputed=1_000_000, padding_share=0.4, num_slices=800
    )
    found = {finding.name: finding.share for finding in findings(evidence)}
    assert {"padding": pytest.approx(0.9 * 0.4), "recomputation": pytest.approx(0.9 * 0.6 / 2)} == found


def test_a_padding_share_is_told_where_time_can_not_be_divided() -> None:
    evidence = with_metrics(with_time(reading=None, writing=None), padding_share=0.4)
    assert [("padding", None)] == [(finding.name, finding.share) for finding in findings(evidence)]
    assert [] == findings(with_metrics(evidence, padding_share=0.15))
