"""What the feeder counts, and how much it holds."""

from collections.abc import Sequence
from threading import Event

from msgspec.structs import replace

from batchrun.records import Request
from batchrun.worker.driver import Driver
from batchrun.worker.feeder import MAX_FURTHER, Feeder, FeedingSettings
from batchrun.worker.residency import Residency
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
