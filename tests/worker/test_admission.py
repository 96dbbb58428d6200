"""What is let into the engine: reservations on counted tokens."""

import random
from dataclasses import replace

from msgspec import structs

from batchrun.engines.base import EngineLimits, EngineSnapshot
from batchrun.engines.kv_blocks import block_names
from batchrun.records import Request
from batchrun.worker.admission import PADDED_WINDOW, Admission
from batchrun.worker.output_prediction import ENOUGH, OutputPrediction

LIMITS = EngineLimits(
    max_model_len=800, kv_tokens=1640, block_size=16, max_num_seqs=4, max_num_batched_tokens=64
)


def make_admission(limits: EngineLimits = LIMITS) -> Admission:
    return Admission(limits, OutputPrediction(()))


def request(name: str, tokens: int, max_tokens: int = 0) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=[sum(name.encode())] * tokens,
        document_span=(0, tokens),
        max_tokens=max_tokens,
        temperature=0.0,
        top_p=1.0,
        seed=0,
    )


def test_the_longest_output_is_reserved_until_others_are_known() -> None:
    """Two of 700 + 50 tokens fill the cache of 1,640 but for its spare; a third waits for one to end."""
    admission = make_admission()
    assert admission.reserve(request("a", 700, 50))
    assert admission.reserve(request("b", 700, 50))
    assert not admission.reserve(request("c", 100, 50))
    admission.release("a")
    assert admission.reserve(request("c", 100, 50))


def test_what_ends_first_makes_room_for_what_grows_later() -> None:
    """700 + 50 and 50 + 750 never stand in the cache at their full lengths together: both are let in, though
    together they come to 1,550; with 700 + 750 they would.
    """
    admission = make_admission(replace(LIMITS, kv_tokens=1400))
    assert admission.reserve(request("short", 700, 50))
    assert admission.reserve(request("long", 50, 750))
    other = make_admission(replace(LIMITS, kv_tokens=1400))
    assert other.reserve(request("long too", 700, 750))
    assert not other.reserve(request("long", 50, 750))


def test_what_the_engine_will_refuse_waits_for_nothing() -> None:
    """A prompt larger than the whole cache goes to the engine beside what runs, and takes no room from it."""
    admission = make_admission(replace(LIMITS, kv_tokens=1000, max_model_len=2000))
    assert admission.reserve(request("runs", 700, 50))
    assert admission.reserve(request("refused", 1100, 50))
    assert admission.reserve(request("runs too", 100, 50))
    admission.release("refused")
    assert not admission.reserve(request("waits", 300, 50))
    admission.release("runs")
    admission.prepare(more := [request(f"refused {n}", 1100, 50) for n in range(3)])
    assert [True, True] == [admission.reserve(one) for one in more[:2]]
    assert ["refused 2"] == [name for name in admission._names if name.startswith("refused")]


def test_a_shared_beginning_is_held_until_the_last_of_its_sequences_ends() -> None:
    """600 tokens that a long output and a short one begin with: they stay when the short one ends."""
    admission = make_admission(replace(LIMITS, kv_tokens=1400))
    prompt = request("shared", 600).prompt_token_ids
    long, short = (
        structs.replace(request(name, 0, output), prompt_token_ids=prompt)
        for name, output in (("long", 500), ("short", 10))
    )
    assert admission.reserve(long)
    assert admission.reserve(short)
    assert not admission.reserve(request("too much beside the long one", 200, 450))


def test_where_nothing_is_shared_every_prompt_is_counted() -> None:
    """An engine without prefix caching holds a beginning once for each sequence."""
    admission = make_admission(replace(LIMITS, kv_tokens=1000, shares_prefixes=False))
    prompt = request("shared", 400).prompt_token_ids
    same = [structs.replace(request(name, 0, 50), prompt_token_ids=prompt) for name in "abc"]
    assert [True, True, False] == [admission.reserve(one) for one in same]


def test_sequences_that_end_with_a_step_were_part_of_it() -> None:
    """Of three tokens that three sequences wrote one each, none is counted for another that goes on."""
    admission = make_admission(replace(LIMITS, kv_tokens=1400))
    for name in "abc":
        admission.reserve(request(name, 50, 50))
    admission.release("a")
    admission.release("b")
    admission.advance(EngineSnapshot(running=1, output_tokens=3))
    assert 1.0 == admission._progress


def test_blocks_that_were_named_before_are_counted_as_others() -> None:
    """On the thread that made the requests, or when they are let in: the same room is left."""
    admission = make_admission(replace(LIMITS, kv_tokens=1000))
    prompt = request("shared", 600).prompt_token_ids
    first, second = (structs.replace(request(name, 0, 50), prompt_token_ids=prompt) for name in "ab")
    admission.prepare([first])
    assert admission.reserve(first)
    assert admission.reserve(second)
    admission.prepare([large := request("large", 600, 50)])
    assert [False, False] == [admission.reserve(large) for _ in range(2)]


def test_a_beginning_that_prompts_share_is_reserved_once() -> None:
    """Four of 600 equal tokens take what one takes, and their outputs; the blocks go with the last of them."""
    admission = make_admission(replace(LIMITS, kv_tokens=1000))
    prompt = request("shared", 600).prompt_token_ids
    names = ["a", "b", "c", "d"]
    for name in names:
        assert admission.reserve(structs.replace(request(name, 0, 50), prompt_token_ids=prompt))
    assert not admission.reserve(request("else", 600, 50))
    for name in names:
        admission.release(name)
    assert admission.reserve(request("else", 600, 50))


def test_predictions_take_the_place_of_the_cap() -> None:
    """Once outputs are known to be short, more fit; one that outgrows its prediction is predicted anew."""
    prediction = OutputPrediction(())
    for _ in range(ENOUGH):
        prediction.observe(100, 10)
    assert 10 == prediction.predict(100, 500)
    assert 500 == prediction.predict(100, 500, so_far=10)
    admission = Admission(replace(LIMITS, max_num_seqs=16), prediction)
    assert 12 == sum(admission.reserve(request(str(n), 100, 500)) for n in range(16))
    admission.advance(EngineSnapshot(running=13, output_tokens=13 * 20))
    admission.release("0")
    admission.release("1")
    assert not admission.reserve(request("late", 100, 500))


def test_what_is_larger_than_the_cache_is_let_in_alone() -> None:
    """The engine refuses it with a reason; it does not block the others for ever."""
    admission = make_admission()
    assert admission.reserve(request("huge", 5000))
    assert not admission.reserve(request("small", 10))
    admission.release("huge")
    assert admission.reserve(request("small", 10))


def test_no_more_are_let_in_than_run_and_a_short_queue() -> None:
    """Where the cache is ample the number of requests is what binds."""
    admission = make_admission(replace(LIMITS, kv_tokens=100_000))
    assert 12 == sum(admission.reserve(request(str(n), 10, 10)) for n in range(20))
    assert admission.is_full


def test_a_padded_engine_is_given_a_window_to_choose_from() -> None:
    """It gives memory to a batch when that begins: what waits is bounded by batches, not by the KV cache."""
    admission = make_admission(replace(LIMITS, pads=True, kv_tokens=112))
    assert all(admission.reserve(request(str(number), 50, 14)) for number in range(PADDED_WINDOW))
    assert not admission.reserve(request("one more", 1))
    admission.release("0")
    assert admission.reserve(request("one more", 1))
    many = make_admission(replace(LIMITS, pads=True, max_num_seqs=1))
    assert all(many.reserve(request(str(number), 1)) for number in range(PADDED_WINDOW))
    assert not many.reserve(request("one more", 1))


def test_blocks_are_counted_once_whoever_comes_and_goes() -> None:
    """Prompts that begin alike to different depths, in and out in any order: as many blocks as there are names."""
    draw = random.Random(4)  # noqa: S311 - requests, not secrets
    admission = make_admission(replace(LIMITS, max_num_seqs=64, kv_tokens=40_000))
    stem, held = [draw.randrange(9) for _ in range(400)], {}  # type: list[int], dict[str, set[int]]
    for number in range(2000):
        if held and draw.random() < 0.5:
            name = draw.choice(sorted(held))
            admission.release(name)
            del held[name]
        else:
            prompt = stem[: draw.randrange(400)] + [10 + draw.randrange(3)] * draw.randrange(40)
            one = structs.replace(request(str(number), 0, 5), prompt_token_ids=[*prompt, 1])
            if admission.reserve(one):
                held[one.request_id] = set(block_names(one.prompt_token_ids, LIMITS.block_size))
        assert len(set().union(*held.values())) == admission.num_prompt_blocks
    for name in held:
        admission.release(name)
    assert 0 == admission.num_prompt_blocks
    assert all(admission.reserve(request(name, 18_000, 500)) for name in ("a", "b"))
