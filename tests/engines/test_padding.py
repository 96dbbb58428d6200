"""Which of the waiting requests are computed together."""

import random
from dataclasses import replace

from batchrun.engines.padding import MAX_PADDING_SHARE, Room, choose_batch
from batchrun.records import Request
from tests.engines.requests import make_request

MAX_MODEL_LEN = 8192
ROOM = Room(batched_tokens=4096, kv_tokens=100_000, num_seqs=32)


def waiting(*lengths: int, max_tokens: int = 16) -> list[Request]:
    return [
        make_request(str(n), num_tokens=length, max_tokens=max_tokens) for n, length in enumerate(lengths)
    ]


def lengths_of(batch: list[Request]) -> list[int]:
    return sorted(len(request.prompt_token_ids) for request in batch)


def chosen(requests: list[Request], room: Room = ROOM) -> list[int]:
    return lengths_of(choose_batch(requests, room, MAX_MODEL_LEN))


def test_a_batch_is_the_first_and_those_nearest_to_it_in_length() -> None:
    """Whoever waits longest is in the next batch; who is far from it waits for a batch of its own kind."""
    assert [90, 95, 100, 104] == chosen(waiting(100, 10, 1000, 95, 12, 104, 900, 90))
    assert [900, 1000] == chosen(waiting(1000, 10, 95, 12, 900, 90))


def test_padding_counts_in_the_budget_of_tokens() -> None:
    """Five prompts of 100 tokens fit 500; with one of 110 only four do."""
    room = replace(ROOM, batched_tokens=500)
    assert [100] * 5 == chosen(waiting(*[100] * 8), room)
    assert [100, 100, 100, 110] == chosen(waiting(110, *[100] * 8), room)


def test_the_cache_holds_the_longest_output_of_all_rows() -> None:
    """Prompt and output, each padded to the longest; an output ends at the context's end."""
    room = replace(ROOM, kv_tokens=1000)
    assert [100] * 5 == chosen(waiting(*[100] * 8, max_tokens=100), room)
    assert 4 == len(choose_batch(waiting(*[100] * 8, max_tokens=900), replace(room, kv_tokens=800), 200))


def test_prompts_of_two_buckets_are_never_in_one_batch() -> None:
    """An edge belongs to the bucket above it, as in planning."""
    room = replace(ROOM, edges=(100, 1000))
    assert [90, 95, 99] == chosen(waiting(95, 100, 99, 104, 90), room)
    assert [100, 104] == chosen(waiting(100, 99, 104, 90), room)


def test_there_is_a_limit_of_sequences() -> None:
    """However short they are."""
    assert 32 == len(chosen(waiting(*[5] * 100)))


def test_one_alone_is_taken_whatever_the_room() -> None:
    """There is no smaller batch."""
    assert [5000] == chosen(waiting(5000, 5000))


def test_all_are_taken_in_the_end_with_little_padding() -> None:
    """Lengths as of real documents, from a few tokens to thousands: no row is padded to more than twice its
    length, and all of them together hardly at all; in the order of coming it would be half of the work.
    """
    draw = random.Random(1)  # noqa: S311 - lengths, not secrets
    requests = waiting(*(min(8000, int(draw.lognormvariate(6.7, 1.3)) + 1) for _ in range(500)))
    left, positions, tokens = list(requests), 0, 0
    while left:
        batch = choose_batch(left, ROOM, MAX_MODEL_LEN)
        widths = lengths_of(batch)
        assert left[0] in batch
        assert widths[0] >= (1 - MAX_PADDING_SHARE) * widths[-1]
        positions += len(batch) * widths[-1]
        tokens += sum(widths)
        left = [request for request in left if request not in batch]
    assert sum(lengths_of(requests)) == tokens
    assert 1 - tokens / positions < 0.03
