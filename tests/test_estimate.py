"""Estimates: what a profile foretells, and how a run that is faster or slower is foretold after a fiftieth."""

import random
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from batchrun.estimate import EDGES, Done, Estimate, Expected, inputs_of
from batchrun.profile import Profile, Subject
from batchrun.records import Request
from tests.engines.virtual import LIMITS, VirtualEngine

PROFILE = Profile(
    of=Subject(engine="vllm", engine_version="1", model="m", dtype="float32", device="cpu"),
    prefill=((128, 4000.0), (512, 8000.0), (2048, 9000.0), (8191, 6000.0)),
    decode=((1, 40.0), (4, 150.0), (16, 500.0), (32, 800.0), (64, 900.0)),
    max_num_batched_tokens=4096,
)
RUNNING = 32
DOCUMENTS = 1500
MOST_TOKENS = 160


def documents(order: str) -> list[Request]:
    """Lengths of a real corpus' shape; outputs from 30 to 120 tokens, whatever the length."""
    numbers = random.Random(7)  # noqa: S311 - lengths, not secrets
    lengths = [min(8000, max(40, int(numbers.lognormvariate(6.5, 1.1)))) for _ in range(DOCUMENTS)]
    if order != "shuffled":
        lengths.sort(reverse=order == "longest first")
    return [
        Request(
            request_id=str(number),
            prompt_token_ids=[0] * length,
            document_span=(0, length),
            max_tokens=numbers.randrange(30, 121),
            temperature=0.0,
            top_p=1.0,
            seed=0,
        )
        for number, length in enumerate(lengths)
    ]


def expected_of(requests: list[Request], edges: tuple[int, ...] = EDGES) -> Expected:
    """As a plan knows it: by bucket; no output is known yet."""
    lengths = [len(each.prompt_token_ids) for each in requests]
    bounds = list(zip((0, *edges), (*edges, 1 << 30), strict=True))
    buckets = [[length for length in lengths if low <= length < high] for low, high in bounds]
    pairs = inputs_of([len(each) for each in buckets], [sum(each) for each in buckets], longest=8191)
    return Expected(inputs=pairs, documents=len(requests), output_tokens=MOST_TOKENS, running=RUNNING)


def watched(requests: list[Request], prefill: float, decode: float) -> Iterator[Done]:
    """A run on an engine that reads and writes so many times as fast as the profile, after every step."""
    engine = VirtualEngine(
        lambda length: prefill * PROFILE.prefill_rate(length),
        lambda running: decode * PROFILE.decode_rate(running),
        replace(LIMITS, max_num_seqs=RUNNING),
    )
    started, waiting, ended, read = engine.now, list(reversed(requests)), 0, 0
    while waiting or engine.has_unfinished():
        while waiting and engine.snapshot().running + engine.snapshot().waiting < RUNNING + 8:
            engine.add(waiting.pop())
        for completion in engine.step():
            ended += 1
            read += completion.input_tokens
        now = engine.snapshot()
        yield Done(
            documents=ended,
            input_tokens=read,
            running=now.running,
            read=now.computed_tokens,
            written=now.output_tokens,
            seconds=engine.now - started,
        )


@pytest.mark.parametrize("speed", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("order", ["shuffled", "shortest first", "longest first"])
def test_a_fiftieth_of_a_run_foretells_the_rest(order: str, speed: float) -> None:
    """Within 10 % of the whole time, from there to the end, where the machine has half or twice the speed of
    the profile, and outputs are half as long as they may be.
    """
    requests = documents(order)
    estimate = Estimate(profile=PROFILE, expected=expected_of(requests))
    seen = list(watched(requests, speed, speed))
    whole = seen[-1].seconds
    errors = [
        (done.seconds + estimate.seconds_left(done)) / whole - 1
        for done in seen
        if done.documents >= 0.02 * DOCUMENTS
    ]
    assert 0.10 > max(map(abs, errors)), (order, speed, min(errors), max(errors))


@pytest.mark.parametrize(("prefill", "decode"), [(0.5, 2.0), (2.0, 0.5)])
def test_the_two_rates_may_differ_apart(prefill: float, decode: float) -> None:
    """In a shuffled order every part of the run has the same mixture of both, so that one factor holds."""
    requests = documents("shuffled")
    estimate = Estimate(profile=PROFILE, expected=expected_of(requests))
    seen = list(watched(requests, prefill, decode))
    for done in seen:
        if done.documents >= 0.05 * DOCUMENTS:
            assert seen[-1].seconds == pytest.approx(done.seconds + estimate.seconds_left(done), 0.15)


def test_before_there_is_enough_the_profile_says_it() -> None:
    """Less what has passed."""
    estimate = Estimate(profile=PROFILE, expected=expected_of(documents("shuffled")))
    nothing = Done(documents=0, input_tokens=0, running=0, read=0, written=0, seconds=0.0)
    assert estimate.seconds == estimate.seconds_left(nothing)
    assert estimate.seconds - 3 == estimate.seconds_left(replace(nothing, running=8, read=500, seconds=3.0))
    assert 0.0 == estimate.seconds_left(replace(nothing, seconds=1e9))


def test_what_earlier_runs_did_says_nothing_of_this_ones_speed() -> None:
    """Documents that were done before anything was read leave the profile's time."""
    estimate = Estimate(profile=PROFILE, expected=expected_of(documents("shuffled")))
    done = Done(documents=400, input_tokens=9000, running=0, read=0, written=0, seconds=1.0)
    assert estimate.seconds - 1 == estimate.seconds_left(done)


def test_the_time_foretold_is_that_of_the_profile() -> None:
    """Buckets at their mean lengths, outputs at the rate of as many sequences as run at once."""
    inputs = inputs_of([10, 0, 4], [5120, 0, 8192], longest=8191)
    assert ((10, 512), (4, 2048)) == inputs
    estimate = Estimate(
        profile=PROFILE, expected=Expected(inputs=inputs, documents=14, output_tokens=100, running=4)
    )
    assert 5120 / 8000 + 8192 / 9000 + 1400 / 150 == pytest.approx(estimate.seconds)
    more = replace(estimate, expected=replace(estimate.expected, running=1000))
    assert more.seconds < estimate.seconds  # 14 documents run at once


def test_a_document_in_parts_is_read_at_full_length() -> None:
    """Two documents of 20,000 tokens in a context of 8,191 are some five prompts."""
    [(number, tokens)] = inputs_of([2], [40_000], longest=8191)
    assert 8191 == tokens
    assert 40_000 / 8191 == pytest.approx(number)


def test_more_sequences_than_pay_are_no_loss() -> None:
    """Where 64 write less than 32, 32 are what the ceiling is made of."""
    profile = msgspec.structs.replace(PROFILE, decode=((16, 500.0), (32, 800.0), (64, 400.0)))
    expected = Expected(inputs=((100, 1.0),), documents=100, output_tokens=80, running=64)
    estimate = Estimate(profile=profile, expected=expected)
    assert 8000 / 800 == pytest.approx(estimate.seconds - estimate.reading_seconds)


@pytest.mark.parametrize("speed", [0.5, 1.0])
def test_the_share_of_the_ceiling_is_the_speed(speed: float) -> None:
    """A run at half of the profile's speed reaches half of the ceiling."""
    requests = documents("shuffled")
    estimate = Estimate(profile=PROFILE, expected=expected_of(requests))
    *_, last = watched(requests, speed, speed)
    assert speed == pytest.approx(estimate.ceiling_share(last), 0.08)
    assert estimate.ceiling_share(replace(last, seconds=0.0)) is None
