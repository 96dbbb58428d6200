"""The simulator's scheduler, on counted tokens and steps."""

from typing import Any

import pytest

from batchrun.engines.kv_blocks import KVBlocks, block_names
from batchrun.engines.output_lengths import lognormal_length
from batchrun.engines.simulator import Rates, Simulator


def make_simulator(**changes: Any) -> Simulator:
    values: dict[str, Any] = {
        "rates": Rates(prefill=1000.0, decode=100.0),
        "kv_tokens": 1600,
        "block_size": 16,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 100,
        "prefix_caching": True,
    }
    return Simulator(**values | changes)


def run(simulator: Simulator) -> dict[str, float]:
    """When each sequence ended."""
    ended = {}
    while simulator.has_unfinished:
        for one in simulator.step():
            ended[one.request_id] = simulator.counts.seconds
    return ended


def prompt(first: int, number: int) -> list[int]:
    return list(range(first, first + number))


def test_a_long_prompt_is_read_in_chunks_of_the_budget() -> None:
    """250 tokens at 100 a step: three steps and 0.25 s, the last of which gives the first output token; then
    one step for each further token, of 1/100 s.
    """
    simulator = make_simulator()
    simulator.add("a", prompt(0, 250), [1, 2, 3])
    ended = run(simulator)
    assert 5 == simulator.counts.steps
    assert pytest.approx(0.25 + 0.02) == ended["a"]
    assert (252, 2, 3) == (
        simulator.counts.computed_tokens,
        simulator.counts.decode_tokens,
        simulator.counts.output_tokens,
    )


def test_what_decodes_goes_before_what_waits() -> None:
    """A step gives each running sequence its token, and the rest of the budget to the next prompt."""
    simulator = make_simulator(max_num_batched_tokens=50)
    simulator.add("a", prompt(0, 50), [1] * 10)
    simulator.add("b", prompt(1000, 49), [1])
    simulator.step()
    simulator.step()
    assert (50, 1) == (simulator.counts.step_tokens, simulator.num_running)


def test_many_sequences_write_faster_than_one_as_the_rates_say() -> None:
    """With a half batch of 3, one sequence writes 25 tokens a second of 100, three write 50."""
    rates = Rates(decode=100.0, half_batch=3.0)
    assert (0.04, 0.06) == (rates.seconds(0, 1), rates.seconds(0, 3))
    assert 0.0 == rates.seconds(0, 0)


def test_outputs_that_outgrow_the_cache_preempt_the_one_that_came_last() -> None:
    """Two of 48 + 64 tokens in 10 blocks of 16: the second starts again, its own blocks still known or not."""
    simulator = make_simulator(kv_tokens=160)
    simulator.add("a", prompt(0, 48), [1] * 64)
    simulator.add("b", prompt(1000, 48), [2] * 64)
    ended = run(simulator)
    assert ended["a"] < ended["b"]
    assert 1 == simulator.counts.preemptions
    assert 0 < simulator.counts.recomputed_tokens <= 48 + 64
    assert 128 == simulator.counts.output_tokens


def test_a_shared_beginning_is_read_once() -> None:
    """Whole blocks only, and always at least the last token of a prompt."""
    simulator = make_simulator()
    for number in range(4):
        simulator.add(str(number), [*prompt(0, 40), *prompt(1000 * (number + 1), 8)], [1])
        run(simulator)
    assert 48 + 3 * 16 == simulator.counts.computed_tokens
    assert 3 * 32 == simulator.counts.cached_tokens
    simulator.add("again", [*prompt(0, 40), *prompt(4000, 8)], [1])
    run(simulator)
    assert 4 * 32 == simulator.counts.cached_tokens


def test_without_prefix_caching_nothing_is_shared() -> None:
    """The same prompt twice is read twice."""
    simulator = make_simulator(prefix_caching=False)
    for number in range(2):
        simulator.add(str(number), prompt(0, 48), [1])
        run(simulator)
    assert (96, 0) == (simulator.counts.computed_tokens, simulator.counts.cached_tokens)


def test_the_block_used_least_recently_is_the_first_to_be_forgotten() -> None:
    """Three blocks: the beginning of a sequence outlives its end, and what was held again outlives both."""
    blocks, names = KVBlocks(3), block_names(prompt(0, 32), 16)
    held = blocks.hold_new(2)
    assert held is not None
    for block, name in zip(held, names, strict=True):
        blocks.name(block, name)
    blocks.release(held)
    assert blocks.hold_new(2) is not None
    assert [held[0]] == blocks.hold_named(names)
    assert blocks.hold_new(1) is None
    assert 1.0 == blocks.usage


def test_a_block_is_named_by_all_that_leads_up_to_it() -> None:
    """Equal blocks after different beginnings have different names; a last block that is not full has none."""
    one, two = block_names([1] * 40, 16), block_names([2] * 16 + [1] * 16, 16)
    assert (2, 2) == (len(one), len(two))
    assert not set(one) & set(two)


def test_lengths_are_drawn_for_each_document_alike() -> None:
    """The same in any order; half of them below the median, few far above it."""
    lengths = [lognormal_length(str(n), seed=1, median=60, sigma=1.0) for n in range(2000)]
    assert lengths[7] == lognormal_length("7", seed=1, median=60, sigma=1.0)
    assert lengths != [lognormal_length(str(n), seed=2, median=60, sigma=1.0) for n in range(2000)]
    assert 0.47 < sum(length < 60 for length in lengths) / 2000 < 0.53
    assert 0.015 < sum(length > 60 * 7.389 for length in lengths) / 2000 < 0.035
