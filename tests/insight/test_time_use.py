"""Where the time of a run went, from timelines that are made up."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs

from batchrun.insight.division import Division, divide
from batchrun.insight.documents import _rates
from batchrun.insight.prices import Prices, learn_prices
from batchrun.insight.time_use import TimeUse, time_use
from batchrun.profile import Profile, Subject
from batchrun.telemetry.timeline import SCHEMA

PROFILE = Profile(
    of=Subject(engine="vllm", engine_version="1", model="m", dtype="float32", device="cpu"),
    prefill=((128, 1000.0),),
    decode=((1, 10.0), (64, 100.0)),
    max_num_batched_tokens=4096,
)


def timeline(number: int = 100, **columns: Any) -> pa.Table:
    """A sample a second, of a full engine with work for it, but for what is given."""
    rising = np.arange(number)
    usual = {
        "running_seconds": rising,
        "num_steps": 1 + 10 * rising,
        "running": np.full(number, 64),
        "waiting": np.full(number, 8),
        "waiting_prefill_tokens": np.arange(number, 0, -1),
    }
    values = {name: usual.get(name, np.zeros(number)) for name in SCHEMA.names} | columns
    return pa.table(
        [pa.array(values[name]).cast(SCHEMA.field(name).type) for name in SCHEMA.names], schema=SCHEMA
    )


def division(samples: pa.Table, profile: Profile | None = None, input_tokens: float = 128) -> Division:
    return divide(samples, max_num_seqs=64, profile=profile, input_tokens=input_tokens)


def used(samples: pa.Table, profile: Profile | None = None) -> TimeUse:
    found = time_use(division(samples, profile))
    assert found is not None
    return found


def test_few_samples_tell_nothing() -> None:
    """Nor do those from before the engine was there, and many of a few long steps."""
    rising = np.arange(100)
    few = [
        timeline(20),
        timeline(100, running_seconds=np.maximum(0, rising - 85), num_steps=np.maximum(0, rising - 85)),
        timeline(100, num_steps=rising // 10),
        SCHEMA.empty_table(),
    ]
    assert [None] * 4 == [time_use(division(samples)) for samples in few]
    later = np.maximum(0, rising - 10)
    assert 89 == used(timeline(100, running_seconds=later, num_steps=later)).seconds


def test_more_sequences_make_no_token_quicker() -> None:
    """Whatever a profile says that was measured on a busy machine."""
    busy = structs.replace(PROFILE, decode=((1, 1.0), (2, 8.0)))
    pricing = division(timeline(40), busy).pricing
    assert pricing is not None
    assert 0.0 == pricing.growth(2)


def test_a_profile_that_is_no_measure_of_the_run_gives_way_to_the_night() -> None:
    """It has the word again where the night has none."""
    telling = steps_of_reading_and_writing(15)
    even = timeline(100)
    found = [
        divide(samples, max_num_seqs=64, profile=PROFILE, input_tokens=128, is_doubted=is_doubted).pricing
        for samples in (telling, even)
        for is_doubted in (False, True)
    ]
    assert ["profile", "timeline", "profile", "profile"] == [each.basis for each in found if each]


def steps_of_reading_and_writing(seconds: float, every: float = 0.5) -> pa.Table:
    """60 steps that read 1,500 tokens in so many seconds, each with 5 steps of a second that write; sampled twice a
    second.
    """
    rng = np.random.default_rng(2)
    reads = np.tile([1, 0, 0, 0, 0, 0], 60)
    read = reads * rng.integers(1000, 2000, 360)
    ends = np.cumsum(read * seconds / 1500 + (1 - reads) * 1.0)
    moments = np.append(np.arange(0, ends[-1], every), ends[-1])
    steps = np.searchsorted(ends, moments, side="right")

    def total(each: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.append(0, np.cumsum(each))[steps]

    return timeline(
        len(moments),
        running_seconds=moments,
        num_steps=steps,
        prefill_tokens=total(read),
        decode_tokens=total(20 * (1 - reads)),
    )


def test_a_second_belongs_to_the_step_that_ended_it() -> None:
    """Where a step of 15 s spans 30 samples, a prompt token has the price of all of them."""
    samples = steps_of_reading_and_writing(15)
    found = division(samples)
    assert isinstance(found.pricing, Prices)
    assert 0.01 == pytest.approx(found.pricing.of_prompt, rel=0.05)
    truth = 1 - 300 / float(samples["running_seconds"][-1].as_py())
    assert truth == pytest.approx(used(samples).reading, abs=0.01)
    assert 1.0 == pytest.approx(sum(found.intervals.seconds) / samples["running_seconds"].to_numpy()[-1])


def test_an_engine_that_was_started_again_takes_no_time_of_the_others() -> None:
    """60 s of loading, 200 s of reading, death, 60 s of loading, 200 s of writing, by the seconds of the run."""
    rising = np.arange(401)
    found = used(
        timeline(
            401,
            seconds=60.0 + rising + 60 * (rising > 200),
            running_seconds=rising,
            prefill_tokens=1000 * np.minimum(rising, 200),
            decode_tokens=100 * np.maximum(0, rising - 200),
        ),
        PROFILE,
    )
    assert (0.5, 0.5, 0.0) == pytest.approx((found.reading, found.writing, found.feeding), abs=0.01)
    assert 400 == found.seconds


def test_an_engine_that_was_empty_was_not_badly_fed_in_the_step_that_came_then() -> None:
    """Of 2 s without work and 8 s of a step, 40 times, the 2 s are feeding."""
    rising = np.arange(40)
    found = used(
        timeline(
            40,
            running_seconds=10 * (rising + 1),
            num_steps=rising + 1,
            idle_seconds=2 * (rising + 1),
            running=np.zeros(40),
            waiting=np.zeros(40),
        ),
        PROFILE,
    )
    assert 0.2 == pytest.approx(found.feeding + found.idle, abs=0.01)


def test_the_first_step_has_what_there_is() -> None:
    """Documents are still being read: though it may take long, nothing of it is bad feeding."""
    rising = np.arange(40)
    moments = 1.0 * rising + 60 * (rising > 0)
    found = used(
        timeline(40, running_seconds=moments, num_steps=rising, starved_steps=np.minimum(rising, 1)), PROFILE
    )
    assert 0.0 == found.feeding


def test_prompts_of_some_length_are_read_as_fast_as_they_are() -> None:
    """The profile's rate is that of the length that a prompt token stands in."""
    rising = np.arange(100)
    profile = structs.replace(PROFILE, prefill=((100, 1000.0), (10_000, 500.0)))
    samples = timeline(prefill_tokens=100 * rising, decode_tokens=30 * rising)
    short, long = (division(samples, profile, length).costs for length in (100, 10_000))
    assert short is not None
    assert long is not None
    assert 2 * short[0].sum() == pytest.approx(long[0].sum())


def test_the_prices_of_a_night_are_learnt_from_it() -> None:
    """Of a prompt token, an output token and a step."""
    rng = np.random.default_rng(1)
    steps = np.full(200, 50.0)
    prefill, decode = rng.uniform(0, 50_000, 200), rng.uniform(0, 3000, 200)
    seconds = prefill / 20_000 + decode / 2_000 + 0.008 * steps
    found = learn_prices(seconds + rng.normal(0, 0.02, 200), prefill, decode, steps)
    assert found is not None
    assert (1 / 20_000, 1 / 2_000, 0.008) == pytest.approx(
        (found.of_prompt, found.of_output, found.of_step), rel=0.1
    )
    assert 60 / 76 == pytest.approx(found.growth(60), rel=0.1)


def test_documents_cost_what_was_learnt() -> None:
    """By tokens read and written, with as many beside; what takes no time weighs nothing, what is not known has no rate."""
    learnt = Prices(of_prompt=0.0, of_output=0.5, of_step=2.0, error_of_output=0.1)
    rates = _rates(learnt, 4)
    assert {math.inf} == set(rates["prefill"]["rate"].to_pylist())
    assert [1 / 2.5, 1 / 1.5, 3 / 3.5, 1.0] == pytest.approx(rates["decode"]["rate"].to_pylist())
    assert [None] * 4 == _rates(None, 4)["decode"]["rate"].to_pylist()


@pytest.mark.parametrize("seed", range(10))
def test_of_an_even_night_no_prices_are_told(seed: int) -> None:
    """Where all intervals are alike but for noise, any division would do."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(1, 0.05, (4, 200))
    assert learn_prices(2.0 * noise[0], 20_000 * noise[1], 2_000 * noise[2], 50 * noise[3]) is None
    same = noise[1]
    assert learn_prices(2.0 * same, 20_000 * same, 2_000 * same, 50 * same) is None


def test_reading_and_writing_divide_the_time_as_the_profile_says() -> None:
    """Also where the machine is slower than it was: the profile gives the proportion."""
    rising = np.arange(100)
    found = used(timeline(prefill_tokens=100 * rising, decode_tokens=30 * rising), PROFILE)
    assert "profile" == found.basis
    assert (0.25, 0.75) == pytest.approx((found.reading, found.writing), abs=0.01)
    assert 0.78 == pytest.approx(found.growth, abs=0.05)


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({"idle_seconds": np.arange(100) * 0.5}, "idle"),
        ({"starved_steps": np.arange(100) * 5}, "feeding"),
        ({"running": np.where(np.arange(100) % 2, 64, 20), "waiting": np.zeros(100)}, "feeding"),
    ],
)
def test_lost_time_has_one_name(columns: dict[str, Any], name: str) -> None:
    """Half of it, here; nothing is lost twice, and what is left reads and writes."""
    rising = np.arange(100)
    found = used(timeline(prefill_tokens=100 * rising, decode_tokens=30 * rising, **columns), PROFILE)
    shares = {each: getattr(found, each) for each in ("idle", "feeding", "tail")}
    assert 0.5 == pytest.approx(shares.pop(name), abs=0.02)
    assert [0.0, 0.0] == pytest.approx(list(shares.values()), abs=0.02)
    assert 1.0 == pytest.approx(
        found.idle + found.feeding + found.tail + (found.reading or 0) + (found.writing or 0)
    )


@pytest.mark.parametrize("left", [0, 777])
def test_the_tail_is_what_stands_empty_when_nothing_is_given_any_more(left: int) -> None:
    """At the end of the work, and where the window ends before it: that work waits then is not bad feeding."""
    ends = np.arange(100) >= 60
    found = used(
        timeline(
            waiting_prefill_tokens=np.where(ends, left, 10_000 - np.arange(100)),
            waiting=np.where(ends, 0, 8),
            running=np.where(ends, 16, 64),
        ),
        PROFILE,
    )
    assert 0.75 * 0.4 == pytest.approx(found.tail, abs=0.02)
    assert 0.0 == found.feeding
    assert 64 == found.running


def test_a_full_cache_is_a_share_of_the_time() -> None:
    found = used(timeline(kv_cache_usage=np.where(np.arange(100) < 40, 0.95, 0.5)))
    assert 0.4 == pytest.approx(found.full_kv, abs=0.02)
