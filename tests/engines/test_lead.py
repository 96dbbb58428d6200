"""What is the lead engine's alone: the document's first tokens, and its clock."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from batchrun.engines.lead import LeadEngine
from batchrun.errors import EngineUnavailableError
from batchrun.profile import Profile, Subject, write_profile
from batchrun.records import Completion, ErrorType, FinishReason
from tests.engines.requests import make_config, make_request, run


def make_lead(**options: Any) -> LeadEngine:
    return LeadEngine(make_config("lead", Path("unused"), options=options))


def test_the_document_is_cut_and_not_the_prompt() -> None:
    """The output begins where the document begins, and ends with it or at `max_tokens`."""
    request = make_request("r", num_tokens=50, max_tokens=10, document_span=(20, 45))
    short = make_request("s", num_tokens=50, max_tokens=30, document_span=(20, 45))
    expected = [
        Completion(
            request_id="r",
            token_ids=request.prompt_token_ids[20:30],
            finish_reason=FinishReason.LENGTH,
            input_tokens=50,
        ),
        Completion(
            request_id="s",
            token_ids=short.prompt_token_ids[20:45],
            finish_reason=FinishReason.STOP,
            input_tokens=50,
        ),
    ]
    assert expected == run(make_lead(), [request, short])


def test_kv_tokens_is_a_limit() -> None:
    """A prompt larger than the simulated cache is refused as it would be by a real one."""
    engine = make_lead(kv_tokens=64)
    completions = run(engine, [make_request("large", num_tokens=65), make_request("fits", num_tokens=64)])
    assert {completion.request_id: completion.error_type for completion in completions} == {
        "large": ErrorType.KV_CACHE_TOO_SMALL,
        "fits": None,
    }


@pytest.mark.parametrize("num_tokens", [90, 96, 98])
def test_a_simulated_cache_is_whole_blocks(num_tokens: int) -> None:
    """100 tokens are six blocks of 16: what does not fit those ends there, or is refused, and never waits for ever."""
    engine = make_lead(kv_tokens=100, output_tokens=500, clock="virtual")
    engine.add(make_request("r", num_tokens=num_tokens, max_tokens=20))
    completions = [completion for _ in range(50) for completion in engine.step()]
    refused = num_tokens > 96
    assert [ErrorType.KV_CACHE_TOO_SMALL if refused else None] == [one.error_type for one in completions]
    assert [0 if refused else max(1, 96 - num_tokens)] == [len(one.token_ids) for one in completions]


def test_rates_are_kept_in_real_time_and_in_order() -> None:
    """Ten requests of 20 + 10 tokens at 2,000 and 500 tokens/s take 0.28 s: a prompt gives the first token."""
    engine = make_lead(prefill_tokens_per_s=2000, decode_tokens_per_s=500)
    requests = [make_request(f"r{n}", num_tokens=20, max_tokens=10) for n in range(10)]
    started = time.monotonic()
    completions = run(engine, requests)
    assert [r.request_id for r in requests] == [c.request_id for c in completions]
    assert 0.28 <= time.monotonic() - started < 3.0


def test_a_measured_profile_gives_the_rates(tmp_path: Path) -> None:
    """400 tokens are read at the rate of 400, then each token is written at that of one sequence."""
    of = Subject(engine="vllm", engine_version="1", model="m", dtype="float32", device="cpu")
    profile = Profile(
        of=of,
        prefill=((100, 1000.0), (400, 4000.0)),
        decode=((1, 50.0), (8, 200.0)),
        max_num_batched_tokens=1024,
    )
    engine = make_lead(profile=str(write_profile(tmp_path, profile)), clock="virtual")
    run(engine, [make_request("r", num_tokens=400, max_tokens=11)])
    assert engine.clock() == pytest.approx(0.1 + 10 / 50)


def test_a_profile_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    """With what makes one."""
    with pytest.raises(EngineUnavailableError, match=r"none\.json can not be read") as caught:
        make_lead(profile=str(tmp_path / "none.json"))
    assert "batchrun calibrate" in str(caught.value)


def test_a_throttled_step_is_short() -> None:
    """A step of a request that takes minutes returns nothing, within the slice that `close` waits for."""
    engine = make_lead(decode_tokens_per_s=0.01)
    engine.add(make_request("slow"))
    assert engine.step() == []
    started = time.monotonic()
    assert engine.step() == []
    assert 0.04 < time.monotonic() - started < 0.3
    assert (engine.snapshot().running, engine.snapshot().waiting) == (1, 0)


def test_closing_wakes_a_step_that_sleeps() -> None:
    """The loop of another thread ends, although its request would take minutes."""
    engine = make_lead(decode_tokens_per_s=0.01)
    engine.add(make_request("slow"))

    def drive() -> None:
        while engine.has_unfinished():
            engine.step()

    driver = threading.Thread(target=drive, daemon=True)
    driver.start()
    engine.close()
    driver.join(timeout=5.0)
    assert not driver.is_alive()


def test_a_step_takes_at_most_max_num_seqs() -> None:
    """The bound on what runs at a time is the config's."""
    engine = make_lead()
    for n in range(20):
        engine.add(make_request(f"r{n}"))
    assert [len(engine.step()) for _ in range(3)] == [8, 8, 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_token": 5}, "the lead engine has no option 'kv_token'\nDid you mean 'kv_tokens'?"),
        ({"zzz": 5}, "the lead engine has no option 'zzz'\nRemove it."),
        ({"decode_tokens_per_s": 0}, "Expected `float` > 0.0 - at `$.decode_tokens_per_s`"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    """An unknown option is named with its nearest neighbour, a wrong value with its place."""
    with pytest.raises(EngineUnavailableError) as caught:
        make_lead(**options)
    assert message in str(caught.value)
