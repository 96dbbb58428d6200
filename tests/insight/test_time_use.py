"""Where the time of a run went, from timelines that are made up."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from batchrun.insight.prices import learn_prices
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
    """A sample a second from the tenth on, of a full engine with work for it, but for what is given."""
    rising = np.arange(number)
    usual = {
        "seconds": rising + 10.0,
        "num_steps": 1 + 10 * rising,
        "running": np.full(number, 64),
        "waiting": np.full(number, 8),
        "waiting_prefill_tokens": np.arange(number, 0, -1),
    }
    values = {name: usual.get(name, np.zeros(number)) for name in SCHEMA.names} | columns
    return pa.table(
        [pa.array(values[name]).cast(SCHEMA.field(name).type) for name in SCHEMA.names], schema=SCHEMA
    )


def used(samples: pa.Table, profile: Profile | None = None, start: float = 10.0) -> TimeUse:
    found = time_use(samples, start=start, max_num_seqs=64, profile=profile, input_tokens=128)
    assert found is not None
    return found


def test_few_samples_tell_nothing() -> None:
    """Nor do those from before the engine was there, and many of a few long steps."""
    settings: dict[str, Any] = {"max_num_seqs": 64, "profile": None, "input_tokens": 1}
    assert time_use(timeline(20), start=10.0, **settings) is None
    assert time_use(timeline(100), start=95.0, **settings) is None
    assert time_use(timeline(100, num_steps=np.arange(100) // 10), start=10.0, **settings) is None
    assert time_use(SCHEMA.empty_table(), start=0.0, **settings) is None
    assert 89 == used(timeline(100), start=20.0).seconds


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
