"""Outputs in slices: what is asked for, what comes together, and where a runaway ends."""

import pytest
from msgspec.structs import replace

from batchrun.records import Completion, FinishReason, Request
from batchrun.worker.calls import Call, resumed
from batchrun.worker.residency import Residency, Slices

PROMPT = [100, 101, 102]
WHOLE = Request(
    request_id="r",
    prompt_token_ids=PROMPT,
    document_span=(0, 3),
    max_tokens=10,
    temperature=0.0,
    top_p=1.0,
    seed=5,
)


def make_slices(request: Request = WHOLE, slice_tokens: int = 4) -> Slices:
    residency = Residency(slice_tokens=slice_tokens, max_share=0.5)
    return Slices(request, residency, lambda request_id, number: 1000 + number)


def completion(
    token_ids: list[int], reason: FinishReason = FinishReason.LENGTH, cached: int = 0
) -> Completion:
    return Completion(
        request_id="r",
        token_ids=token_ids,
        finish_reason=reason,
        input_tokens=3,
        cached_tokens=cached,
    )


def test_an_output_is_asked_for_slice_by_slice() -> None:
    """Each goes on from the prompt and all tokens so far; the last ends at the cap of the whole."""
    slices = make_slices()
    assert replace(WHOLE, max_tokens=4) == slices.next_request()
    first = slices.take(completion([1, 2, 3, 4], cached=2))
    assert (0, False) == (first.number, first.is_last)
    assert replace(WHOLE, prompt_token_ids=[*PROMPT, 1, 2, 3, 4], max_tokens=4, num_generated=4) == (
        slices.next_request()
    )
    slices.take(completion([5, 6, 7, 8], cached=7))
    assert 2 == slices.next_request().max_tokens
    last = slices.take(completion([9, 10], cached=11))
    assert (2, True) == (last.number, last.is_last)
    assert last.output == Completion(
        request_id="r",
        token_ids=list(range(1, 11)),
        finish_reason=FinishReason.LENGTH,
        input_tokens=3,
        cached_tokens=2,
    )


def test_an_output_that_fits_a_slice_is_asked_for_as_it_is() -> None:
    """Nothing is sliced that is short; it is the same request."""
    slices = make_slices(slice_tokens=10)
    assert slices.next_request() is WHOLE
    assert slices.take(completion([1], FinishReason.STOP)).is_last


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.ERROR, FinishReason.ABORT])
def test_what_ended_otherwise_than_by_its_length_is_whole(reason: FinishReason) -> None:
    """Also where it is as long as a slice."""
    ended = make_slices().take(completion([1, 2, 3, 4], reason))
    assert (True, reason) == (ended.is_last, ended.output.finish_reason)


def test_an_output_cut_before_its_slice_is_full_is_whole() -> None:
    """The context is full."""
    assert make_slices().take(completion([1, 2, 3])).is_last


def test_each_slice_draws_with_a_seed_of_its_own() -> None:
    """Under a temperature only."""
    slices = make_slices(replace(WHOLE, temperature=0.7))
    assert 1000 == slices.next_request().seed
    slices.take(completion([1, 2, 3, 4]))
    assert 1001 == slices.next_request().seed


def test_what_an_earlier_run_began_goes_on_from_its_tokens() -> None:
    """The slices count on from there, and the cap is that of the whole."""
    call = Call(key=bytes(16), request=WHOLE, kept_tokens=3)
    slices = make_slices(resumed(call, [1, 2, 3, 4]).request)
    assert (1, 4) == (slices.number, slices.next_request().num_generated)
    slices.take(completion([5, 6, 7, 8]))
    ended = slices.take(completion([9, 10]))
    assert (list(range(1, 11)), 3) == (ended.output.token_ids, ended.output.input_tokens)
    assert resumed(call, []) is call
    assert resumed(call, list(range(10))) is call


LOOP = [7, 8, 9]
RUNAWAY = [*range(20, 40), *LOOP * 60]


@pytest.mark.parametrize("slice_tokens", [16, 50, 64, 100, 1000])
def test_a_runaway_ends_at_the_same_token_whatever_the_slices(slice_tokens: int) -> None:
    """It is looked at after each 64 tokens: at the first such place where it repeats itself it ends."""
    slices = make_slices(replace(WHOLE, max_tokens=len(RUNAWAY)), slice_tokens)
    made, ended = 0, None
    while ended is None or not ended.is_last:
        number = slices.next_request().max_tokens
        ended = slices.take(completion(RUNAWAY[made : made + number]))
        made += number
    assert (RUNAWAY[:64], FinishReason.REPETITION) == (ended.output.token_ids, ended.output.finish_reason)


def test_an_output_that_ends_while_it_repeats_itself_is_left_as_it_is() -> None:
    """Only one that goes on after the place is cut."""
    ended = make_slices(replace(WHOLE, max_tokens=64), 1000).take(completion(RUNAWAY[:64]))
    assert (RUNAWAY[:64], FinishReason.LENGTH) == (ended.output.token_ids, ended.output.finish_reason)
