"""The meter: known rates in, the same rates out, in the time that was given."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from batchrun.errors import EngineUnavailableError
from batchrun.meter import Meter
from batchrun.records import Request
from tests.engines.virtual import LIMITS, VirtualEngine

VOCABULARY = 49152


def prefill_rate(length: int) -> float:
    """Slower for short prompts, and for very long ones."""
    return 10_000 / (1 + 100 / length + length / 16_384)


def decode_rate(running: int) -> float:
    """Gains up to some 64 sequences, and loses after."""
    return 40 * running / (1 + running / 32 + (running / 64) ** 2)


def test_the_prefill_rates_are_those_of_the_engine() -> None:
    """By length, from 128 up to the longest that leaves room for an output token; within 1 %."""
    points = Meter(VirtualEngine(prefill_rate, decode_rate), VOCABULARY).prefill(120)
    assert [128, 512, 2048, 8191] == [length for length, _ in points]
    assert [prefill_rate(length) for length, _ in points] == pytest.approx([rate for _, rate in points], 0.01)


def test_the_decode_rates_are_those_of_the_engine() -> None:
    """The reading of the prompts is taken off; more sequences are tried until they do not gain: 128 do not."""
    points = Meter(VirtualEngine(prefill_rate, decode_rate), VOCABULARY).decode(1200)
    assert [1, 2, 4, 8, 16, 32, 64, 128] == [number for number, _ in points]
    assert [decode_rate(number) for number, _ in points] == pytest.approx([rate for _, rate in points], 0.01)


def test_a_model_that_would_end_early_is_measured_as_long_as_asked() -> None:
    """Outputs of many lengths would leave fewer running than the rate is said of; those of documents end as they do."""

    def ends(request: Request) -> int:
        return request.max_tokens if request.ignore_eos else 5 + 7 * int(request.request_id[-1])

    engine = VirtualEngine(prefill_rate, decode_rate, ends=ends)
    meter = Meter(engine, VOCABULARY)
    assert decode_rate(8) == pytest.approx(meter.decode_rate(8), 0.01)
    given = structs.replace(meter._request(200, 100), ignore_eos=False)
    [output] = meter.documents([given])[1]
    assert len(output) <= 68


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"max_num_seqs": 6}, [1, 2, 4, 6]),
        ({"max_num_seqs": 1}, [1]),
        ({"kv_tokens": 800}, [1, 2, 4, 5]),  # 160 tokens a sequence
        ({"kv_tokens": 64}, [1]),
    ],
)
def test_no_more_sequences_than_run_at_once(changes: dict[str, Any], expected: list[int]) -> None:
    """Neither `max_num_seqs` nor the KV cache is exceeded: what waits or is preempted is no decode rate."""
    engine = VirtualEngine(lambda _: 1e4, lambda running: 10.0 * running, replace(LIMITS, **changes))
    points = Meter(engine, VOCABULARY).decode(1e6)
    assert expected == [number for number, _ in points]
    assert expected[-1] == engine.most_running


def test_a_small_context_is_measured_at_its_length() -> None:
    """Prompts and outputs fit whatever the context."""
    engine = VirtualEngine(prefill_rate, decode_rate, replace(LIMITS, max_model_len=100, max_num_seqs=4))
    meter = Meter(engine, VOCABULARY)
    assert [99] == [length for length, _ in meter.prefill(10)]
    assert [1, 2, 4] == [number for number, _ in meter.decode(1000)]
    assert max(len(each.prompt_token_ids) + each.max_tokens for each in engine.served) <= 100


def test_the_requests_fill_the_token_budget() -> None:
    """Three times 4,096 tokens of each length, where there is time."""
    engine = VirtualEngine(prefill_rate, decode_rate)
    Meter(engine, VOCABULARY).prefill_rate(512, 1e6)
    assert 1 + 24 == len(engine.served)


def test_no_prompt_begins_as_another() -> None:
    """A prefix cache has nothing to give, and only ids from the middle of the vocabulary are used."""
    engine = VirtualEngine(prefill_rate, decode_rate)
    meter = Meter(engine, VOCABULARY)
    meter.prefill(10)
    meter.decode(10)
    beginnings = {tuple(each.prompt_token_ids[:16]) for each in engine.served}
    assert len(engine.served) == len(beginnings)
    used = {token for each in engine.served for token in each.prompt_token_ids}
    assert VOCABULARY // 8 <= min(used) <= max(used) < VOCABULARY * 3 // 4
    assert len(engine.served) == len({each.request_id for each in engine.served})


@pytest.mark.parametrize("seconds", [5, 20, 60])
def test_a_slow_engine_is_measured_in_the_time_given(seconds: float) -> None:
    """At 100 tokens/s three fills of the budget take 123 s for each length: fewer requests do, or fewer
    lengths; the longest alone takes 82 s.
    """
    engine = VirtualEngine(lambda _: 100.0, lambda running: 5.0 * running)
    meter = Meter(engine, VOCABULARY)
    points = meter.prefill(seconds)
    assert {100.0} == {round(rate, 6) for _, rate in points}
    assert meter.seconds <= seconds + 2 * 128 / 100
    before = meter.seconds
    points = meter.decode(seconds)
    assert len(points) >= 1
    assert meter.seconds - before <= seconds + 60


def test_documents_are_decoded_as_they_are() -> None:
    """Their outputs come back in their order, and the rate is that of decoding alone."""
    engine = VirtualEngine(prefill_rate, decode_rate)
    meter = Meter(engine, VOCABULARY)
    given = [structs.replace(meter._request(200 + n, 20 + n), request_id="same") for n in range(8)]
    rate, outputs = meter.documents(given)
    assert [list(range(1, 21 + n)) for n in range(8)] == [
        [each if index else 1 for index, each in enumerate(output)] for output in outputs
    ]
    assert decode_rate(8) * 0.7 < rate <= decode_rate(8) * 1.01


def test_a_refusal_says_what_to_do() -> None:
    """Nothing is measured of an engine that refuses."""
    engine = VirtualEngine(prefill_rate, decode_rate)
    with pytest.raises(EngineUnavailableError, match="refused a prompt of 9,000 tokens: too long"):
        Meter(engine, VOCABULARY).prefill_rate(9000, 10)


def test_an_engine_whose_time_stands_still_has_no_rate() -> None:
    """A simulator without rates: not a division by zero, but what to set."""
    engine = VirtualEngine(lambda _: float("inf"), lambda _: float("inf"))
    with pytest.raises(EngineUnavailableError, match="there is no rate to measure"):
        Meter(engine, VOCABULARY).prefill(10)
