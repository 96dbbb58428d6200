"""What a run cost."""

import pytest

from batchrun.insight.cost import bill_of
from batchrun.run_record import RowCounts, RunRecord, RunState, TokenCounts
from batchrun.spec import EngineSpec, JobSpec
from batchrun.store.job_file import JobRecord, Resolved

RECORD = RunRecord(
    job_id="j",
    run_id="r",
    seed=0,
    corpus_id="c",
    corpus=[],
    state=RunState.COMPLETE,
    rows=RowCounts(computed=1000),
    tokens=TokenCounts(input=3_000_000, output=500_000),
)


def job(device: str, **options: int) -> JobRecord:
    spec = JobSpec(model="m", engine=EngineSpec(kind="vllm", options=options))
    resolved = Resolved(kind="vllm", dtype="bfloat16", device=device)
    return JobRecord(
        job_id="j",
        name="j",
        fingerprint="",
        fields={},
        spec=spec,
        model_folder="",
        created_at="",
        resolved=resolved,
    )


def test_each_gpu_has_its_price() -> None:
    """Four of them for half an hour are two GPU hours; all is divided by what was done with them."""
    bill = bill_of(RECORD, job("cuda", tensor_parallel_size=2, data_parallel_size=2), 1800, 2.5)
    assert (4, 0.5, 2.0, 5.0) == (bill.num_gpus, bill.machine_hours, bill.gpu_hours, bill.cost)
    assert (0.005, 1.8) == (bill.cost_per_document, bill.machine_seconds_per_document)
    assert [5 / 3, 10, 5 / 3.5] == pytest.approx(
        [bill.cost_per_million_input, bill.cost_per_million_output, bill.cost_per_million_tokens]
    )
    assert 0.5 / 3 == pytest.approx(bill.machine_hours_per_million_input)
    assert 0.01 == pytest.approx(bill.cost_of(3.6))


def test_without_a_gpu_the_machine_has_it_and_without_a_price_nothing_has() -> None:
    assert (0, 0.0, 1.25) == tuple(
        getattr(bill_of(RECORD, job("cpu"), 1800, 2.5), name) for name in ("num_gpus", "gpu_hours", "cost")
    )
    free = bill_of(RECORD, job("cuda"), 1800)
    assert (None, None, 1.8) == (free.cost, free.cost_per_document, free.machine_seconds_per_document)


def test_where_nothing_was_done_nothing_has_a_price_of_its_own() -> None:
    bill = bill_of(
        RunRecord(job_id="j", run_id="r", seed=0, corpus_id="c", corpus=[], state=RunState.FAILED),
        job("cpu"),
        36,
        1.0,
    )
    assert (0.01, None, None) == (bill.cost, bill.cost_per_document, bill.cost_per_million_tokens)
