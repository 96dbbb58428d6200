"""What is the transformers engine's alone: padding, memory that is short, sampling, and its start."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from batchrun import engines
from batchrun.engines.base import EngineDeadError
from batchrun.engines.sampling import Sampler
from batchrun.engines.transformers import TransformersEngine, is_out_of_memory
from batchrun.engines.vllm import VllmEngine
from batchrun.errors import EngineUnavailableError
from batchrun.records import ErrorType, FinishReason, Request
from tests.engines.requests import (
    END_TOKEN,
    VOCABULARY,
    make_config,
    make_request,
    outputs,
    run,
)

pytestmark = pytest.mark.engine

NUM_REQUESTS = 8


@pytest.fixture(scope="module")
def loaded(tiny_llama: Path) -> Iterator[TransformersEngine]:
    engine = TransformersEngine(make_config("transformers", tiny_llama))
    yield engine
    engine.close()


@pytest.fixture
def engine(loaded: TransformersEngine) -> Iterator[TransformersEngine]:
    """The shared engine, with all its room again afterwards."""
    room = loaded._room
    yield loaded
    loaded._room = room


def mixed(**changes: Any) -> list[Request]:
    """Of many lengths, each with another number of tokens to write."""
    return [
        make_request(f"r{n}", num_tokens=60 + 7 * n, max_tokens=10 + 3 * n, **changes)
        for n in range(NUM_REQUESTS)
    ]


def one_by_one(engine: TransformersEngine, requests: list[Request]) -> dict[str, list[int]]:
    return {name: ids for request in requests for name, ids in outputs(run(engine, [request])).items()}


def together(engine: TransformersEngine, requests: list[Request]) -> dict[str, list[int]]:
    """As one batch."""
    before = engine.snapshot()
    for request in requests:
        engine.add(request)
    completions = engine.step()
    assert len(requests) == engine.snapshot().running + len(completions)
    assert engine.snapshot().padded_tokens > before.padded_tokens
    return outputs([*completions, *run(engine, [])])


def positions_of(forward: dict[str, Any]) -> int:
    return int(forward["attention_mask"].numel())


def short_of_memory(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch, most: int, *, error: Exception | None = None
) -> list[int]:
    """No forward pass works on more than `most` positions; the list grows by those that were tried."""
    import torch

    assert engine._model is not None
    forward, tried = engine._model.module.forward, []

    def limited(**arguments: Any) -> Any:
        tried.append(positions_of(arguments))
        if tried[-1] > most:
            raise error or torch.OutOfMemoryError("CUDA out of memory")
        return forward(**arguments)

    monkeypatch.setattr(engine._model.module, "forward", limited)
    return tried


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_text_does_not_depend_on_its_neighbours(tiny_llama: Path, attention: str) -> None:
    """In float32: alone, and as one batch in which others are shorter, longer, and end sooner or later."""
    options = {"attn_implementation": attention}
    engine = TransformersEngine(make_config("transformers", tiny_llama, options=options))
    requests = mixed()
    assert one_by_one(engine, requests) == together(engine, requests)
    assert together(engine, requests) == together(engine, requests[::-1])
    engine.close()


def test_padding_makes_nothing_that_is_no_number(engine: TransformersEngine) -> None:
    """A row that is nearly all padding: its padded positions see nothing, and all logits are finite."""
    import torch

    model = engine._model
    assert model is not None
    token_ids = torch.full((2, 50), 7)
    mask = torch.ones_like(token_ids)
    mask[0, :49] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache = model.new_cache()
    with torch.inference_mode():
        logits = model.next_logits(token_ids, mask, positions, cache)
        alone = model.next_logits(token_ids[:1, 49:], mask[:1, 49:], positions[:1, 49:], model.new_cache())
    assert all(layer.keys.isfinite().all() and layer.values.isfinite().all() for layer in cache.layers)
    torch.testing.assert_close(alone[0], logits[0], rtol=1e-4, atol=1e-5)


def test_greedy_is_what_generate_gives(engine: TransformersEngine, tiny_llama: Path) -> None:
    """Transformers' own loop, each prompt alone; end token and all."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_llama, dtype=torch.float32)
    expected = {}
    for request in mixed():
        prompt = torch.tensor([request.prompt_token_ids])
        with torch.inference_mode():
            generated = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                do_sample=False,
                max_new_tokens=request.max_tokens,
            )
        expected[request.request_id] = generated[0, prompt.shape[1] :].tolist()
    assert expected == outputs(run(engine, mixed()))


def test_greedy_is_what_vllm_gives(engine: TransformersEngine, tiny_llama: Path) -> None:
    """In float32 the same tokens for the same reason, end token and all, of outputs that stop and outputs
    that are cut.
    """
    requests = [make_request(f"r{n}", num_tokens=20 + n, max_tokens=30) for n in range(16)]
    vllm = VllmEngine(make_config("vllm", tiny_llama))
    theirs = {c.request_id: (c.token_ids, c.finish_reason) for c in run(vllm, requests)}
    vllm.close()
    ours = {c.request_id: (c.token_ids, c.finish_reason) for c in run(engine, requests)}
    assert theirs == ours
    assert {FinishReason.STOP, FinishReason.LENGTH} == {reason for _, reason in ours.values()}


def test_an_end_token_as_the_last_that_fits_is_a_stop(engine: TransformersEngine) -> None:
    """As vLLM has it: what ended by itself was not cut."""
    stopped = next(
        completion
        for completion in run(
            engine, [make_request(f"r{n}", num_tokens=20 + n, max_tokens=30) for n in range(16)]
        )
        if completion.finish_reason is FinishReason.STOP
    )
    assert END_TOKEN == stopped.token_ids[-1]
    number = int(stopped.request_id[1:])
    limit = len(stopped.token_ids)
    (again,) = run(engine, [make_request(f"r{number}", num_tokens=20 + number, max_tokens=limit)])
    assert replace(stopped, times=None) == replace(again, times=None)


def test_sampling_depends_on_the_seed_alone(engine: TransformersEngine) -> None:
    """Alone, in a batch and beside a greedy one: the same draws; another seed draws otherwise."""
    sampled = mixed(temperature=0.9, top_p=0.9)
    greedy = make_request("greedy", num_tokens=64)
    expected = one_by_one(engine, [*sampled[:4], greedy])
    assert expected == outputs(run(engine, [greedy, *sampled[:4]]))
    other = make_request("r0", num_tokens=60, max_tokens=10, temperature=0.9, top_p=0.9, seed=2**64 - 1)
    assert expected["r0"] != outputs(run(engine, [other]))["r0"]
    assert one_by_one(engine, mixed()[:4]) != {k: v for k, v in expected.items() if k != "greedy"}


def test_little_mass_on_top_is_the_likeliest_token(engine: TransformersEngine) -> None:
    """`top_p` cuts the tail before a token is drawn: with none left but the first, it is greedy decoding."""
    assert one_by_one(engine, mixed()[:3]) == outputs(run(engine, mixed(temperature=1.5, top_p=1e-6)[:3]))


def test_a_batch_that_does_not_fit_is_tried_in_halves(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost, nothing changes, and what did not fit once is not tried again."""
    requests = [make_request(f"r{n}", num_tokens=100, max_tokens=4) for n in range(NUM_REQUESTS)]
    expected = outputs(run(engine, requests))
    tried = short_of_memory(engine, monkeypatch, most=300)
    assert expected == outputs(run(engine, requests))
    assert [800, 400, 200] == tried[:3]
    assert 300 >= max(tried[2:])
    tried.clear()
    assert expected == outputs(run(engine, requests))
    assert 300 >= max(tried)


def test_a_batch_that_outgrows_the_memory_is_computed_again_in_halves(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While decoding: what had ended stays done, the others begin again, and that is counted."""
    requests = [make_request(f"r{n}", num_tokens=50, max_tokens=2 if n == 0 else 40) for n in range(6)]
    expected = outputs(run(engine, requests))
    before = engine.snapshot()
    tried = short_of_memory(engine, monkeypatch, most=6 * 60)
    completions = run(engine, requests)
    assert len(requests) == len(completions)
    assert expected == outputs(completions)
    after = engine.snapshot()
    assert 1 <= after.num_preemptions - before.num_preemptions <= 5
    assert max(tried) > 6 * 60
    assert engine._room.kv_tokens <= 6 * 60


def test_memory_that_is_short_while_tokens_are_chosen_loses_no_output(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a batch in which one output ends and choosing another's token fails, every request comes back."""
    import torch

    choose, calls = Sampler.choose, iter(range(100))

    def limited(self: Sampler, logits: Any, likeliest: int) -> int:
        if next(calls) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return choose(self, logits, likeliest)

    monkeypatch.setattr(Sampler, "choose", limited)
    requests = [make_request(f"r{n}", num_tokens=10, max_tokens=1) for n in range(3)]
    assert {"r0", "r1", "r2"} == outputs(run(engine, requests)).keys()
    assert next(calls) > 3


def test_what_does_not_fit_alone_is_an_error_and_its_neighbours_survive(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While reading and while writing: a reason, and never a text."""
    short_of_memory(engine, monkeypatch, most=200)
    requests = [
        make_request("reads", num_tokens=300),
        make_request("writes", num_tokens=190, max_tokens=40),
        make_request("fits", num_tokens=100),
    ]
    completions = {completion.request_id: completion for completion in run(engine, requests)}
    errors = {name: completion.error_type for name, completion in completions.items()}
    expected = ErrorType.KV_CACHE_TOO_SMALL
    assert {"reads": expected, "writes": expected, "fits": None} == errors
    assert "300 tokens do not fit the memory" in str(completions["reads"].error)
    assert FinishReason.ERROR == completions["writes"].finish_reason
    assert [] == completions["writes"].token_ids


def test_the_memory_of_a_cpu_can_be_short_too() -> None:
    """Torch's allocator for the CPU has no error of its own; another RuntimeError is none of memory."""
    import torch

    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**62, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
    assert not is_out_of_memory(RuntimeError("shape mismatch"))


def test_another_error_of_a_step_is_the_engines_death(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It carries what was said, and a dead engine stays dead."""
    engine = TransformersEngine(make_config("transformers", tiny_llama))
    short_of_memory(engine, monkeypatch, most=0, error=RuntimeError("no kernel image"))
    engine.add(make_request("r"))
    for call in (engine.step, engine.step, lambda: engine.add(make_request("s"))):
        with pytest.raises(EngineDeadError, match="RuntimeError: no kernel image"):
            call()
    engine.abort(["r"])
    engine.close()


def test_aborted_while_decoding(engine: TransformersEngine) -> None:
    """Its neighbours go on as if nothing had been; when all are gone, nothing is left to do."""
    requests = mixed()
    expected = outputs(run(engine, requests))
    for request in requests:
        engine.add(request)
    engine.step()
    engine.abort(["r7", "r6"])
    assert NUM_REQUESTS - 2 == engine.snapshot().running
    assert {k: v for k, v in expected.items() if k not in {"r6", "r7"}} == outputs(run(engine, []))
    engine.add(make_request("r", max_tokens=400))
    engine.step()
    engine.abort(["r"])
    assert (0, False) == (engine.snapshot().running, engine.has_unfinished())


def test_ended_rows_leave_the_batch(engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """One long output does not drag seven ended ones along to its end."""
    tried = short_of_memory(engine, monkeypatch, most=10**9)
    run(engine, [make_request(f"r{n}", num_tokens=50, max_tokens=3 if n else 40) for n in range(8)])
    assert 8 * 50 == tried[0]
    assert tried[-1] < 2 * 90


def test_padding_is_counted(engine: TransformersEngine) -> None:
    """Prompts of 60 and 100 tokens: 40 are padding, 160 are not."""
    before = engine.snapshot()
    run(engine, [make_request("a", num_tokens=60), make_request("b", num_tokens=100)])
    after = engine.snapshot()
    assert (40, 160) == (
        after.padded_tokens - before.padded_tokens,
        after.computed_tokens - before.computed_tokens,
    )


def test_a_step_is_a_forward_pass(engine: TransformersEngine) -> None:
    """Its tokens are those of prompts, then one of each output that has not ended."""
    before = engine.snapshot().num_steps
    for number in range(2):
        engine.add(make_request(f"r{number}", num_tokens=60, max_tokens=1 + number * 3))
    engine.step()
    assert (before + 1, 120) == (engine.snapshot().num_steps, engine.snapshot().step_tokens)
    run(engine, [])
    assert (before + 4, 1) == (engine.snapshot().num_steps, engine.snapshot().step_tokens)


def test_a_token_that_the_model_does_not_have_is_refused(engine: TransformersEngine) -> None:
    """Above the vocabulary, below zero, and beyond 64 bits: error rows, and the engine lives."""
    requests = [make_request(str(token), prompt_token_ids=[5, token]) for token in (VOCABULARY, -1, 2**70)]
    completions = run(engine, requests)
    assert {ErrorType.ENGINE_REJECTED} == {completion.error_type for completion in completions}
    assert len(requests) == len(completions)


def test_the_cache_is_as_large_as_its_memory(tiny_llama: Path) -> None:
    """Two layers of one head of 32 values, twice, in float32: 512 bytes a token."""
    options = {"kv_cache_memory_bytes": 512 * 1000}
    engine = TransformersEngine(make_config("transformers", tiny_llama, options=options))
    assert (1000, 1, True) == (engine.limits.kv_tokens, engine.limits.block_size, engine.limits.pads)
    engine.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"attn_implementatio": "sdpa"},
            "no option 'attn_implementatio'\nDid you mean 'attn_implementation'?",
        ),
        ({"kv_cache_memory_bytes": 0}, "the transformers engine: Expected `int` >= 1"),
        ({"attn_implementation": "none_such"}, "transformers does not load the model: "),
    ],
)
def test_options_are_checked(tiny_llama: Path, options: dict[str, Any], message: str) -> None:
    """An unknown option is named with its nearest neighbour; a wrong value with what was said of it."""
    with pytest.raises(EngineUnavailableError) as caught:
        TransformersEngine(make_config("transformers", tiny_llama, options=options))
    assert message in str(caught.value)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    """Said before transformers takes it for a hub id."""
    with pytest.raises(EngineUnavailableError, match=r"is no model folder: it has no config\.json"):
        TransformersEngine(make_config("transformers", tmp_path))


def test_a_model_that_padding_would_change_is_refused(tiny_llama: Path, tmp_path: Path) -> None:
    """One that carries a state from token to token, and not keys and values: said at the start."""
    from transformers import AutoModelForCausalLM, MambaConfig

    config = MambaConfig(vocab_size=VOCABULARY, hidden_size=8, state_size=4, num_hidden_layers=1)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    for file in tiny_llama.glob("tokenizer*"):
        shutil.copy(file, tmp_path)
    with pytest.raises(EngineUnavailableError, match="MambaForCausalLM remembers more than keys and values"):
        TransformersEngine(make_config("transformers", tmp_path))


def test_nothing_is_printed(tiny_llama: Path) -> None:
    """Standard output is for data, and nobody can act on a progress bar in a log."""
    script = f"""
from pathlib import Path
from batchrun import engines
from tests.engines.requests import make_config, make_request, run
assert ("cpu", "float32") == engines.resolve_device_and_dtype("transformers", "float32")
engine = engines.start(make_config("transformers", Path({str(tiny_llama)!r})))
assert 3 == len(run(engine, [make_request(f"r{{n}}", temperature=n / 2, top_p=0.5) for n in range(3)]))
engine.close()
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("installed", "kind"),
    [({"vllm", "torch", "transformers"}, "vllm"), ({"torch", "transformers"}, "transformers")],
)
def test_auto_is_what_is_installed(monkeypatch: pytest.MonkeyPatch, installed: set[str], kind: str) -> None:
    """VLLM before transformers; a machine without vLLM is served."""
    have(monkeypatch, installed)
    assert kind == engines.resolve_kind("auto")


def test_where_nothing_is_installed_the_command_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """For `auto` and for the kind by name."""
    have(monkeypatch, {"torch"})
    with pytest.raises(EngineUnavailableError, match="pip install 'batchrun"):
        engines.resolve_kind("auto")
    with pytest.raises(EngineUnavailableError) as caught:
        engines.resolve_device_and_dtype("transformers", "auto")
    assert "pip install 'batchrun[transformers]'" in caught.value.hint


@pytest.mark.parametrize(("capability", "dtype"), [((8, 0), "bfloat16"), ((7, 5), "float16")])
def test_auto_on_a_gpu_is_what_it_computes_in(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], dtype: str
) -> None:
    """bfloat16 from compute capability 8.0 on; what the spec says is taken as it is."""
    gpu = SimpleNamespace(is_available=lambda: True, get_device_capability=lambda: capability)
    monkeypatch.setattr("torch.cuda", gpu)
    assert ("cuda", dtype) == engines.resolve_device_and_dtype("transformers", "auto")
    assert ("cuda", "float32") == engines.resolve_device_and_dtype("transformers", "float32")


def have(monkeypatch: pytest.MonkeyPatch, installed: set[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name if name in installed else None)
