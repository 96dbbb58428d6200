"""Evidence that is made up: of a healthy run, and what differs from it."""

from dataclasses import replace
from typing import Any

from batchrun.insight.bottlenecks import findings
from batchrun.insight.evidence import Beside, Evidence, Requests
from batchrun.insight.finding import Finding
from batchrun.insight.percentiles import Group, Quantiles
from batchrun.insight.time_use import TimeUse
from batchrun.run_record import BatchMetrics, RunRecord, RunState, TokenCounts
from batchrun.spec import EngineSpec, JobSpec

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
    num_outputs=1000,
    input_tokens_of_a_token=1000.0,
    num_preempted=0,
    preempted_tokens=0.0,
    held_tokens=1400.0,
    median_input_tokens=900.0,
    median_output_tokens=100.0,
    long_output_tokens=150.0,
    longest_seconds=20.0,
    last_output_tokens=120,
    last_input_tokens=900,
    last_is_nested=False,
)
BESIDE = Beside(
    num_requests=1000,
    num_beside=400,
    itl_p50=20.0,
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


def with_record(evidence: Evidence = HEALTHY, **changes: Any) -> Evidence:
    return replace(evidence, record=replace(evidence.record, **changes))


def with_engine(evidence: Evidence, **changes: Any) -> Evidence:
    return replace(evidence, spec=JobSpec(model="m", engine=EngineSpec(**changes)))


def group(length: str | None, concurrency: str | None, number: int, **medians: float) -> Group:
    """All of which have the times that are given."""
    quantiles: dict[str, Any] = dict.fromkeys(
        ("queue_ms", "prefill_ms", "ttft_ms", "tpot_ms", "itl_p50", "itl_p95")
    )
    quantiles |= {name: Quantiles(p50=value, p95=value, p99=value) for name, value in medians.items()}
    return Group(
        length=length,
        concurrency=concurrency,
        num_requests=number,
        num_queue=number,
        num_prefill=number,
        num_ttft=number,
        num_tpot=number,
        num_itl=number,
        input_tokens=1000.0,
        output_tokens=50.0,
        **quantiles,
    )


def the_one(evidence: Evidence) -> Finding:
    [found] = findings(evidence)
    return found


BY_LENGTH = (
    group("0–1K", None, 50, prefill_ms=4000.0, tpot_ms=40.0),
    group("1K–8K", None, 50, prefill_ms=9000.0, tpot_ms=41.0),
)
BY_CONCURRENCY = (
    group("0–1K", "1", 50, prefill_ms=40.0, tpot_ms=10.0),
    group("0–1K", "2", 50, prefill_ms=40.0, tpot_ms=30.0),
)
