"""What is vLLM's alone: its start, its environment, its process, and how it ends."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batchrun.engines import vllm
from batchrun.engines.base import EngineDeadError, EngineSnapshot
from batchrun.engines.hardware import cpu_dtype
from batchrun.engines.parent import ERRORS_FILE, PARENT_PID
from batchrun.engines.vllm import VllmEngine
from batchrun.engines.vllm_times import SAMPLED_EVERY, Times
from batchrun.errors import EngineUnavailableError
from batchrun.records import Completion, ErrorType, FinishReason, Request
from tests.engines.children import is_alive, wait_until
from tests.engines.requests import MAX_MODEL_LEN, make_config, make_request, outputs, run

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def small_cache(tiny_llama: Path) -> Iterator[VllmEngine]:
    """An engine in this process whose KV cache holds little more than one full context."""
    engine = VllmEngine(make_config("vllm", tiny_llama, options={"num_gpu_blocks_override": 6}))
    yield engine
    engine.close()


@pytest.mark.engine
def test_a_start_that_fails_says_why_and_does_not_spoil_the_next(tiny_llama: Path) -> None:
    """The reason is vLLM's own sentence; the engine of the following tests starts after it."""
    with pytest.raises(EngineUnavailableError) as caught:
        VllmEngine(make_config("vllm", tiny_llama, options={"kv_cache_memory_bytes": 1}))
    assert "vLLM does not start: No available memory for the cache blocks" in str(caught.value)
    assert "engine.max_model_len" in caught.value.hint


@pytest.mark.engine
def test_the_first_request_of_a_job_is_not_the_engines_first(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What compiles at the first request is loading; the job's counts begin after it."""
    seen: list[str] = []
    add = VllmEngine.add

    def seen_add(self: VllmEngine, request: Request) -> None:
        seen.append(request.request_id)
        add(self, request)

    monkeypatch.setattr(VllmEngine, "add", seen_add)
    engine = VllmEngine(make_config("vllm", tiny_llama))
    assert (["warm-up"], False, EngineSnapshot()) == (seen, engine.has_unfinished(), engine.snapshot())
    engine.close()


@pytest.mark.engine
def test_limits_leave_out_the_null_block(small_cache: VllmEngine) -> None:
    """Six blocks of 128 tokens hold five blocks of requests."""
    assert (small_cache.limits.kv_tokens, small_cache.limits.block_size) == (5 * 128, 128)


@pytest.mark.engine
def test_preempted_requests_are_counted_and_give_the_same_outputs(small_cache: VllmEngine) -> None:
    """Requests that outgrow the cache together are computed again, and lose nothing."""
    requests = [make_request(f"r{n}", num_tokens=120, max_tokens=300) for n in range(6)]
    alone = {r.request_id: outputs(run(small_cache, [r]))[r.request_id] for r in requests}
    assert small_cache.snapshot().num_preemptions == 0
    completions = run(small_cache, requests)
    assert alone == outputs(completions)
    assert small_cache.snapshot().num_preemptions > 0
    assert small_cache.snapshot().num_preemptions == sum(
        completion.times.num_preemptions for completion in completions if completion.times
    )


@pytest.mark.engine
def test_a_request_has_its_times(small_cache: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, inside the time that the test saw; some have inter-token times, that add up to the decode."""
    monkeypatch.setattr(small_cache, "_times", Times(every=3))
    started = time.monotonic()
    completions = run(small_cache, [make_request(f"r{n}", max_tokens=30) for n in range(7)])
    ended = time.monotonic()
    sampled = {f"r{n}" for n in range(0, 7, 3)}
    for completion in completions:
        times = completion.times
        assert times is not None
        moments = [times.queued_at, times.scheduled_at, times.first_token_at, times.last_token_at]
        assert [started, *moments, ended] == sorted([started, *moments, ended])
        assert (completion.request_id in sampled) == (times.itl_p50 is not None)
        if times.itl_p50 is not None and times.itl_p95 is not None:
            mean = (times.last_token_at - times.first_token_at) / (len(completion.token_ids) - 1)
            assert 0 < times.itl_p50 <= times.itl_p95
            assert 0 < mean < 2 * times.itl_p95
    assert {} == small_cache._times._gaps


@pytest.mark.engine
def test_being_returned_from_every_step_changes_no_output(
    small_cache: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output is the same, and comes once, whether its inter-token times were taken or not; one token has none."""
    monkeypatch.setattr(small_cache, "_times", Times(every=2))
    requests = [make_request(f"r{n}", max_tokens=20) for n in range(5)]
    first = run(small_cache, requests)
    second = run(small_cache, [make_request("one more", max_tokens=1), *requests])
    assert 6 == len(second)
    assert outputs(first) == {name: ids for name, ids in outputs(second).items() if name != "one more"}
    [single] = [each.times for each in second if each.request_id == "one more"]
    assert single is not None
    assert (None, None) == (single.itl_p50, single.itl_p95)


def test_tokens_of_one_step_share_its_time() -> None:
    """Speculation: three tokens after 0.3 s are three gaps of 0.1 s; those of the first step have none."""
    times = Times(keeps_gaps=True)
    assert times.begin("r")
    moments = [(10.0, 2), (10.2, 3), (10.5, 6), (10.5, 6)]
    for last_token_ts, num_generation_tokens in moments:
        stats = SimpleNamespace(
            queued_ts=1.0,
            scheduled_ts=2.0,
            first_token_ts=10.0,
            last_token_ts=last_token_ts,
            num_generation_tokens=num_generation_tokens,
            num_preemptions=1,
        )
        output = SimpleNamespace(request_id="r", metrics=stats)
        times.see(output)
    ended = times.end(output)
    assert ended is not None
    assert [0.1, 0.185] == pytest.approx([ended.itl_p50, ended.itl_p95])
    assert [0.2, 0.1, 0.1, 0.1] == pytest.approx(ended.token_gaps)
    assert 1 == ended.num_preemptions


def test_one_request_in_sixteen_is_returned_from_every_step() -> None:
    """The first among them, so that a small run has some; a forgotten one leaves nothing."""
    times = Times()
    assert [n % SAMPLED_EVERY == 0 for n in range(40)] == [times.begin(str(n)) for n in range(40)]
    times.forget(["0", "1", "16", "unknown"])
    assert ["32"] == list(times._gaps)
    every = Times(keeps_gaps=True)
    assert all(every.begin(str(n)) for n in range(40))


@pytest.mark.engine
def test_a_shared_beginning_is_computed_once(small_cache: VllmEngine) -> None:
    """The second prompt takes its two full blocks from the cache, and says so."""
    before = small_cache.snapshot().cached_tokens
    completions = [
        *run(small_cache, [make_request("r", 300, 1)]),
        *run(small_cache, [make_request("r", 300, 1)]),
    ]
    assert [completion.cached_tokens for completion in completions] == [0, 256]
    assert small_cache.snapshot().cached_tokens - before == 256


@pytest.mark.engine
def test_a_token_that_the_model_does_not_have_is_refused(small_cache: VllmEngine) -> None:
    """Above the vocabulary, below zero, and beyond 64 bits: error rows, and the engine lives."""
    requests = [make_request(str(token), prompt_token_ids=[5, token]) for token in (49152, -1, 2**70)]
    completions = run(small_cache, requests)
    assert {ErrorType.ENGINE_REJECTED} == {completion.error_type for completion in completions}
    assert len(requests) == len(completions)


@pytest.mark.engine
def test_an_aborted_request_is_not_computed_on(small_cache: VllmEngine) -> None:
    """It leaves vLLM too, and with it its slot and its part of the cache."""
    small_cache.add(make_request("r", max_tokens=400))
    small_cache.step()
    small_cache.abort(["r"])
    assert not small_cache._llm.has_unfinished_requests()


@pytest.mark.engine
def test_what_the_engine_itself_aborts_is_no_failure(
    small_cache: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A core that was told to end aborts what it has: neither done nor failed."""
    answer_with(small_cache, monkeypatch, finish_reason="abort", token_ids=[7])
    expected = Completion(request_id="r", token_ids=[7], finish_reason=FinishReason.ABORT, input_tokens=40)
    assert [expected] == run(small_cache, [make_request("r")])


@pytest.mark.engine
@pytest.mark.parametrize(
    ("finish_reason", "error_type"),
    [("error", ErrorType.ENGINE_ERROR), ("length", ErrorType.KV_CACHE_TOO_SMALL)],
)
def test_an_output_without_a_token_is_an_error(
    small_cache: VllmEngine, monkeypatch: pytest.MonkeyPatch, finish_reason: str, error_type: ErrorType
) -> None:
    """An empty output that was cut, or that vLLM calls an error, never looks like a summary."""
    answer_with(small_cache, monkeypatch, finish_reason=finish_reason, token_ids=[])
    (completion,) = run(small_cache, [make_request("r")])
    assert (FinishReason.ERROR, error_type) == (completion.finish_reason, completion.error_type)
    assert completion.error


@pytest.mark.engine
def test_an_exception_of_a_step_is_the_engines_death(
    small_cache: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It carries what was said, and a dead engine stays dead. Last with this engine."""

    def fail() -> None:
        raise RuntimeError("no kernel image")

    small_cache.add(make_request("r"))
    monkeypatch.setattr(small_cache._llm, "step", fail)
    with pytest.raises(EngineDeadError, match="RuntimeError: no kernel image"):
        small_cache.step()
    monkeypatch.undo()
    for call in (small_cache.step, lambda: small_cache.add(make_request("s"))):
        with pytest.raises(EngineDeadError, match="no kernel image"):
            call()
    small_cache.abort(["r"])


@pytest.mark.engine
def test_seeded_sampling_does_not_depend_on_order(
    tiny_llama: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """On a CPU chunked prefill is off where there is a temperature; a seed of 64 bits is one; nothing is printed."""
    config = make_config("vllm", tiny_llama, samples=True, max_num_batched_tokens=64)
    engine = VllmEngine(config)
    assert engine.limits.max_num_batched_tokens == MAX_MODEL_LEN
    requests = [
        make_request(f"r{n}", num_tokens=200, temperature=0.8, top_p=0.9, seed=2**64 - 1 - n)
        for n in range(8)
    ]
    forwards = outputs(run(engine, requests))
    assert forwards == outputs(run(engine, reversed(requests)))
    other_seed = make_request("r0", num_tokens=200, temperature=0.8, top_p=0.9, seed=5)
    assert forwards["r0"] != outputs(run(engine, [other_seed]))["r0"]
    engine.close()
    assert capfd.readouterr() == ("", "")


@pytest.mark.engine
def test_a_killed_core_is_said_within_two_seconds(tiny_llama: Path) -> None:
    """SIGKILL while `step` waits for the core: EngineDeadError, and close leaves no process."""
    engine = VllmEngine(make_config("vllm", tiny_llama, options={"own_process": True}))
    assert not {PARENT_PID, ERRORS_FILE, "VLLM_ENABLE_V1_MULTIPROCESSING"} & set(os.environ)
    core, *workers = engine.process_ids
    killed_at: list[float] = []

    def kill() -> None:
        killed_at.append(time.monotonic())
        os.kill(core, signal.SIGKILL)

    threading.Timer(0.5, kill).start()
    with pytest.raises(EngineDeadError, match="was killed"):
        work_for_ever(engine)
    assert time.monotonic() - killed_at[0] < 2.0
    with pytest.raises(EngineDeadError):
        engine.add(make_request("late"))
    assert wait_until(lambda: not any(map(is_alive, workers)))
    engine.abort(["r0"])
    engine.close()


@pytest.mark.engine
def test_the_core_says_why_it_does_not_start(tiny_llama: Path) -> None:
    """The reason comes from the process that failed, not from the one that waited for it."""
    options = {"own_process": True, "kv_cache_memory_bytes": 1}
    with pytest.raises(EngineUnavailableError, match="No available memory for the cache blocks"):
        VllmEngine(make_config("vllm", tiny_llama, options=options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"enforce_eagr": True}, "no option 'enforce_eagr'\nDid you mean 'enforce_eager'?"),
        (
            {"max_model_len": 5},
            "max_model_len has its own key in the job spec\nSet engine.max_model_len instead.",
        ),
        ({"own_process": "yes"}, "own_process is 'yes'\nSet it to true or false."),
        ({"block_size": "many"}, "vLLM does not start: Input should be a valid integer"),
    ],
)
@pytest.mark.engine
def test_options_are_checked(tiny_llama: Path, options: dict[str, Any], message: str) -> None:
    """An unknown option is named with its nearest neighbour; what the spec sets elsewhere is none."""
    with pytest.raises(EngineUnavailableError) as caught:
        VllmEngine(make_config("vllm", tiny_llama, options=options))
    assert message in str(caught.value)


@pytest.mark.engine
def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    """Said before vLLM takes it for a hub id."""
    with pytest.raises(EngineUnavailableError) as caught:
        VllmEngine(make_config("vllm", tmp_path))
    assert f"{tmp_path} is no model folder: it has no config.json" in str(caught.value)


@pytest.mark.parametrize(
    ("cpuinfo", "dtype"),
    [
        ("flags\t\t: fpu avx2 avx512_bf16\n", "bfloat16"),
        ("flags\t\t: fpu amx_bf16 amx_tile\n", "bfloat16"),
        ("Features\t: fp asimd bf16\n", "bfloat16"),
        ("flags\t\t: fpu avx2 avx512f\n", "float32"),
        (None, "float32"),
    ],
)
def test_auto_is_bfloat16_only_where_the_cpu_computes_in_it(
    tmp_path: Path, cpuinfo: str | None, dtype: str
) -> None:
    """Emulated bfloat16 costs more than it saves."""
    file = tmp_path / "cpuinfo"
    if cpuinfo is not None:
        file.write_text(cpuinfo)
    assert dtype == cpu_dtype(file)


def test_the_device_is_found_without_loading_vllm() -> None:
    """Planning resolves `auto`, and importing vLLM takes six seconds."""
    script = """
import sys
from batchrun.engines.vllm import resolve_device_and_dtype
assert ("cpu", "float16") == resolve_device_and_dtype("float16")
assert resolve_device_and_dtype("auto")[1] in ("float32", "bfloat16")
assert not {"vllm", "torch"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_missing_vllm_is_said_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without a GPU it is the CPU build."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(EngineUnavailableError) as caught:
        vllm.require_installed()
    assert caught.value.exit_code == 69
    assert str(caught.value).startswith("vLLM is not installed\nInstall it: pip install 'batchrun[")


def work_for_ever(engine: VllmEngine) -> None:
    number = 0
    while True:
        for _ in range(8 - engine.snapshot().running - engine.snapshot().waiting):
            engine.add(make_request(f"r{number}", max_tokens=400))
            number += 1
        engine.step()


def answer_with(engine: VllmEngine, monkeypatch: pytest.MonkeyPatch, **sequence: Any) -> None:
    """Let the next step answer request `r` as given, and nothing else."""
    output = SimpleNamespace(
        request_id="r",
        outputs=[SimpleNamespace(**sequence)],
        num_cached_tokens=None,
        finished=True,
        metrics=None,
    )

    def step() -> list[SimpleNamespace]:
        engine._llm.abort_request(["r"])
        return [output]

    monkeypatch.setattr(engine._llm, "step", step)
