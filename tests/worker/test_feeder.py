"""What the feeder counts, and how much it holds."""

import time
from collections.abc import Sequence
from threading import Event
from typing import Any

from msgspec.structs import replace

from batchrun.engines.base import EngineSnapshot
from batchrun.records import Completion, FinishReason, Request
from batchrun.worker.driver import Driver
from batchrun.worker.feeder import MAX_FURTHER, Feeder, FeedingSettings
from batchrun.worker.output_prediction import ENOUGH
from batchrun.worker.residency import Residency, Slice
from tests.worker.simulation import make_engine, make_request, simulated

SETTINGS = FeedingSettings(residency=Residency(slice_tokens=8))


def make_feeding(number: int, num_generated: int = 0) -> tuple[Feeder, Driver, list[int]]:
    """Batches of 8 requests of 64 tokens with outputs of 32, driven by an engine of 2 sequences; and how many
    outputs wait between two slices whenever requests are asked for.
    """
    engine = make_engine(max_num_seqs=2)
    feeder = Feeder(engine.limits, SETTINGS, lambda *_: 0)
    requests = [make_request(f"{n}", [], [100 * n + token for token in range(64)], 32) for n in range(number)]
    todo = [begun(request, num_generated) if num_generated else request for request in requests]
    held: list[int] = []

    def next_requests(_: bool) -> Sequence[Request] | None:
        held.append(feeder.num_further)
        batch = [todo.pop(0) for _ in range(min(8, len(todo)))]
        return batch or (None if not (engine.has_unfinished() or feeder.num_further) else [])

    return feeder, Driver(engine, feeder, next_requests, lambda _: None, Event()), held


def begun(request: Request, number: int) -> Request:
    return replace(
        request,
        prompt_token_ids=[*request.prompt_token_ids, *request.prompt_token_ids[:number]],
        max_tokens=request.max_tokens - number,
        num_generated=number,
    )


def test_output_lengths_of_earlier_runs_are_what_is_expected_first() -> None:
    """Until outputs of this run are known: more are let in than if each were as long as it may be."""
    requests = [make_request(f"{n}", [], [100 * n + token for token in range(64)], 400) for n in range(16)]
    engine = make_engine(max_num_seqs=16, kv_tokens=2000)
    numbers = []
    for known in ((), ((64, 10),) * ENOUGH):
        feeder = Feeder(engine.limits, FeedingSettings(known_lengths=known), lambda *_: 0)
        feeder.offer(requests)
        numbers.append(sum(feeder.next_request() is not None for _ in requests))
    assert [3, 16] == numbers


def test_an_output_that_is_cut_off_says_nothing_of_how_long_outputs_are() -> None:
    """By an abort or an error, however many there are: no more is let in than if each were as long as it may be."""
    requests = [make_request(f"{n}", [], [100 * n + token for token in range(64)], 400) for n in range(16)]
    feeder = Feeder(make_engine(max_num_seqs=16, kv_tokens=2000).limits, FeedingSettings(), lambda *_: 0)
    for number in range(ENOUGH):
        feeder.offer([make_request(f"cut off {number}", [], [7] * 64, 400)])
        request = feeder.next_request()
        assert request is not None
        feeder.take(
            Completion(
                request_id=request.request_id,
                token_ids=[1] * 5,
                finish_reason=FinishReason.ABORT,
                input_tokens=64,
            )
        )
    feeder.offer(requests)
    assert 3 == sum(feeder.next_request() is not None for _ in requests)


class Slow:
    """An engine that takes a while to take a request in, and a while for a step, which ends all."""

    process_ids: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.limits = make_engine(max_num_seqs=2).limits
        self._running: list[Request] = []

    def add(self, request: Request) -> None:
        time.sleep(0.05)
        self._running.append(request)

    def step(self) -> list[Completion]:
        time.sleep(0.05)
        ended, self._running = self._running, []
        return [
            Completion(
                request_id=one.request_id, token_ids=[1], finish_reason=FinishReason.STOP, input_tokens=64
            )
            for one in ended
        ]

    def has_unfinished(self) -> bool:
        return bool(self._running)

    def snapshot(self) -> EngineSnapshot:
        return EngineSnapshot()


def drive(
    engine: Any, number: int, *, feed_seconds: float = 0.0, closing: Event | None = None
) -> tuple[Driver, int]:
    """Requests two at a time, each time after `feed_seconds`; the driver, and how many came out."""
    feeder = Feeder(engine.limits, SETTINGS, lambda *_: 0)
    todo = [make_request(f"{n}", [], [n] * 64, 1) for n in range(number)]
    ended: list[Slice] = []

    def next_requests(_: bool) -> Sequence[Request] | None:
        time.sleep(feed_seconds)
        if not todo:
            return None
        return [todo.pop(0) for _ in range(2)]

    def hand_over(slices: list[Slice]) -> None:
        ended.extend(slices)
        if closing is not None:
            closing.set()

    driver = Driver(engine, feeder, next_requests, hand_over, Event(), closing)
    driver.run(lambda: bool(todo))
    return driver, len(ended)


def test_idle_is_what_stands_between_two_steps() -> None:
    """Waiting for requests is; a step, and the engine's own work to take a request in, are not."""
    busy, _ = drive(Slow(), 6)
    waiting, _ = drive(Slow(), 6, feed_seconds=0.1)
    assert busy.tally.idle_seconds < 0.05
    assert 0.3 < waiting.tally.idle_seconds < 0.6


def test_a_driver_that_closes_runs_what_it_has_to_its_end() -> None:
    """And admits nothing more; it says how long the last requests were in the engine."""
    driver, num_ended = drive(Slow(), 40, closing=Event())
    assert 2 <= num_ended <= 12
    assert 0.05 < driver.stay_seconds < 1.0


def test_a_prompt_is_admitted_once_however_many_slices_its_output_has() -> None:
    """What waits to be read is what is planned less what is admitted; a further slice reads nothing planned."""
    feeder, driver, _ = make_feeding(20)
    driver.run(lambda: False)
    assert 3 * 20 == driver.tally.num_slices
    assert 20 * 64 == feeder.num_admitted_tokens
    assert 0 < feeder.num_cached_again


def test_outputs_that_earlier_runs_began_are_held_a_few_at_a_time() -> None:
    """Not all of a corpus, prompts and all: no more are asked for while as many wait as may be held."""
    feeder, driver, held = make_feeding(400, num_generated=8)
    driver.run(lambda: False)
    assert max(held) < MAX_FURTHER * 2
    assert 400 * (64 + 8) == feeder.num_admitted_tokens
    assert 0 == feeder.num_further


def test_what_is_computed_again_is_told_apart() -> None:
    """Of all that the engine read or found in its cache: what is neither a prompt, once, nor found again."""
    feeder, driver, _ = make_feeding(20)
    driver.run(lambda: False)
    engine = driver._engine
    counts, snapshot = simulated(engine), engine.snapshot()  # type: ignore[arg-type]
    again = snapshot.computed_tokens + snapshot.cached_tokens - feeder.num_admitted_tokens
    assert again - feeder.num_cached_again == counts.computed_tokens - counts.decode_tokens - 20 * 64
