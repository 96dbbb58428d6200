"""What every engine promises to the worker."""

import dataclasses
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from batchrun import engines
from batchrun.engines.base import Engine, EngineDeadError
from batchrun.records import ErrorType, FinishReason
from tests.engines.requests import END_TOKEN, MAX_MODEL_LEN, make_config, make_request, outputs, run

OWN_PROCESS = {"vllm-in-process": False, "vllm-own-process": True}


@pytest.fixture(
    scope="module",
    params=[
        "lead",
        *(pytest.param(name, marks=pytest.mark.engine) for name in ("transformers", *OWN_PROCESS)),
    ],
)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """One engine after the other in one process, each closed before the next is started."""
    if request.param == "lead":
        config = make_config("lead", request.path)
    elif request.param == "transformers":
        config = make_config("transformers", request.getfixturevalue("tiny_llama"))
    else:
        options = {"own_process": OWN_PROCESS[request.param]}
        config = make_config("vllm", request.getfixturevalue("tiny_llama"), options=options)
    engine = engines.start(config)
    yield engine
    engine.close()


def test_every_request_comes_back_once_under_its_id(engine: Engine) -> None:
    """More requests than run at a time: each has one completion, with its own number of input tokens."""
    requests = [make_request(f"r{n}", num_tokens=10 + n, max_tokens=4) for n in range(20)]
    completions = run(engine, requests)
    assert sorted(r.request_id for r in requests) == sorted(c.request_id for c in completions)
    assert {r.request_id: len(r.prompt_token_ids) for r in requests} == {
        c.request_id: c.input_tokens for c in completions
    }


def test_the_order_of_adding_does_not_change_outputs(engine: Engine) -> None:
    """Greedy in float32: forwards, backwards and alone give the same tokens."""
    requests = [make_request(f"r{n}", num_tokens=20 + 15 * n) for n in range(12)]
    forwards = outputs(run(engine, requests))
    assert forwards == outputs(run(engine, reversed(requests)))
    assert forwards["r5"] == outputs(run(engine, [requests[5]]))["r5"]


def test_a_completion_says_when_it_was_queued_begun_and_written(engine: Engine) -> None:
    """On one clock and in this order, if the engine has one; gaps between tokens where it took them."""
    for completion in run(engine, [make_request(f"r{n}", num_tokens=30 + n) for n in range(12)]):
        times = completion.times
        assert (times is None) == engine.label.startswith("lead")
        if times:
            moments = [times.queued_at, times.scheduled_at, times.first_token_at, times.last_token_at]
            assert sorted(moments) == moments
            assert (times.itl_p50 or 0.0) <= (times.itl_p95 or 0.0)
            assert (times.last_token_at > times.first_token_at) == (len(completion.token_ids) > 1)


def test_max_tokens_is_obeyed(engine: Engine) -> None:
    """No output is longer than asked for, and one that is cut says so."""
    completions = run(engine, [make_request(f"r{n}", max_tokens=n) for n in range(1, 9)])
    for completion in completions:
        limit = int(completion.request_id[1:])
        assert 1 <= len(completion.token_ids) <= limit
        if completion.finish_reason is FinishReason.LENGTH:
            assert limit == len(completion.token_ids)


def test_an_output_stops_by_itself_or_by_its_length(engine: Engine) -> None:
    """A document shorter than the output's limit, or the model's end token, ends it with `stop`."""
    requests = [make_request(f"r{n}", num_tokens=20 + n, max_tokens=30) for n in range(16)]
    completions = run(engine, requests)
    reasons = {completion.finish_reason for completion in completions}
    assert {FinishReason.STOP, FinishReason.LENGTH} == reasons
    if not engine.label.startswith("lead"):
        stopped = [c for c in completions if c.finish_reason is FinishReason.STOP]
        assert {END_TOKEN} == {completion.token_ids[-1] for completion in stopped}


def test_an_output_whose_end_is_ignored_has_the_length_asked_for(engine: Engine) -> None:
    """Where others would stop by themselves, as above: for measuring."""
    requests = [make_request(f"r{n}", num_tokens=20 + n, max_tokens=30, ignore_eos=True) for n in range(16)]
    completions = run(engine, requests)
    assert {(30, FinishReason.LENGTH)} == {(len(one.token_ids), one.finish_reason) for one in completions}


def test_what_does_not_fit_comes_back_as_an_error_and_its_neighbours_survive(engine: Engine) -> None:
    """Empty, longer than the context, and exactly as long: errors. One token less: one token of output."""
    lengths = {"empty": 0, "fits": MAX_MODEL_LEN - 1, "full": MAX_MODEL_LEN, "long": 3000, "short": 30}
    completions = run(engine, [make_request(name, num_tokens=n) for name, n in lengths.items()])
    by_id = {completion.request_id: completion for completion in completions}
    assert len(lengths) == len(completions)
    for name in ("empty", "full", "long"):
        assert by_id[name].finish_reason == FinishReason.ERROR
        assert by_id[name].error_type == ErrorType.ENGINE_REJECTED
        assert by_id[name].error
    assert len(by_id["fits"].token_ids) == 1
    assert outputs(run(engine, [make_request("short", num_tokens=30)]))["short"] == by_id["short"].token_ids


def test_no_room_for_an_output_is_an_error(engine: Engine) -> None:
    """A limit of no tokens is refused, and not an empty summary."""
    (completion,) = run(engine, [make_request("none", max_tokens=0)])
    assert completion.error_type == ErrorType.ENGINE_REJECTED


def test_a_prompt_larger_than_the_kv_cache_is_an_error(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could never be computed; never an empty output that looks finished."""
    monkeypatch.setattr(engine, "limits", dataclasses.replace(engine.limits, kv_tokens=100))
    completions = run(engine, [make_request("large", num_tokens=101), make_request("fits", num_tokens=100)])
    errors = {completion.request_id: completion.error_type for completion in completions}
    assert errors == {"large": ErrorType.KV_CACHE_TOO_SMALL, "fits": None}


def test_an_aborted_request_yields_nothing_and_others_survive(engine: Engine) -> None:
    """Queued, running or refused: once aborted, it never comes back; ids that are not there are ignored."""
    requests = [make_request(f"r{n}", num_tokens=50, max_tokens=8) for n in range(10)]
    expected = outputs(run(engine, requests))
    for request in [*requests, make_request("refused", num_tokens=0)]:
        engine.add(request)
    engine.abort(["r3", "r9", "refused", "unknown"])
    assert {k: v for k, v in expected.items() if k not in {"r3", "r9"}} == outputs(run(engine, []))


def test_a_step_with_nothing_to_do_returns_at_once(engine: Engine) -> None:
    """It does not wait for work; neither when all work was aborted."""
    engine.add(make_request("aborted"))
    engine.abort(["aborted"])
    assert not engine.has_unfinished()
    started = time.monotonic()
    assert engine.step() == []
    assert time.monotonic() - started < 0.1


def test_the_snapshot_counts(engine: Engine) -> None:
    """Requests in the engine are running or waiting; prompt and output tokens add up."""
    before = engine.snapshot()
    requests = [make_request(f"r{n}", num_tokens=30) for n in range(11)]
    for request in requests:
        engine.add(request)
    added = engine.snapshot()
    assert len(requests) == added.running + added.waiting
    completions = run(engine, [])
    after = engine.snapshot()
    assert (after.running, after.waiting, after.kv_cache_usage) == (0, 0, 0.0)
    computed, cached = (
        after.computed_tokens - before.computed_tokens,
        after.cached_tokens - before.cached_tokens,
    )
    assert 30 * len(requests) == computed + cached
    assert sum(len(c.token_ids) for c in completions) == after.output_tokens - before.output_tokens
    assert before.num_preemptions == after.num_preemptions


def test_the_engine_says_what_it_is_and_what_it_can(engine: Engine) -> None:
    """The limits are those of the config, and at least one full context fits the KV cache."""
    limits = engine.limits
    assert (
        limits.max_model_len,
        limits.max_num_seqs,
        limits.max_num_batched_tokens,
    ) == (MAX_MODEL_LEN, 8, 1024)
    assert limits.kv_tokens >= limits.max_model_len
    assert limits.kv_tokens % limits.block_size == 0
    assert engine.label.startswith("transformers") == limits.pads
    assert "cpu" in engine.label


def test_closing_ends_a_step_that_runs(engine: Engine) -> None:
    """From another thread, in bounded time, twice; no process is left. Last here: it ends the shared engine."""
    requests = [make_request(f"r{n}", num_tokens=100, max_tokens=400) for n in range(200)]
    started = threading.Event()

    def drive() -> None:
        for request in requests:
            engine.add(request)
        while engine.has_unfinished():
            started.set()
            engine.step()

    driver = threading.Thread(target=drive, daemon=True)
    driver.start()
    started.wait()
    processes = [psutil.Process(process_id) for process_id in engine.process_ids]
    closing = time.monotonic()
    engine.close()
    engine.close()
    driver.join(timeout=2.0)
    assert not driver.is_alive()
    assert time.monotonic() - closing < 12.0
    assert [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []
    assert not engine.has_unfinished()
    assert engine.step() == []
    with pytest.raises(EngineDeadError):
        engine.add(make_request("late"))
