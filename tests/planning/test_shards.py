"""A shard of a plan: a share of the texts, with all that is counted of them."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from batchrun.documents import EMPTY, DocumentBatch
from batchrun.errors import UsageError
from batchrun.planning.measure import PlanSettings
from batchrun.planning.work import WorkCounts
from batchrun.prompts.tokenizer import Tokenizer
from batchrun.shard import WHOLE, Shard, numbers_of, parse_shard
from tests.fixtures import tokenizer_of
from tests.planning.plans import SETTINGS, Plan, digits, make_batch, make_plan

SPLIT = [Shard(number=number, of=3) for number in (1, 2, 3)]


@pytest.fixture
def tokenizer(tiny_llama: Path) -> Tokenizer:
    return tokenizer_of(tiny_llama)


def corpus() -> list[DocumentBatch]:
    """Two batches: 40 texts, each twice, four of which are too long; ten rows without a text."""
    texts = [digits(20 + number, number % 9 + 1) for number in range(36)]
    long = [digits(180 + number, 5) for number in range(4)]
    first = make_batch([*texts, *long, *[None] * 10], verdicts=dict.fromkeys(range(40, 50), EMPTY))
    return [first, make_batch([*texts, *long], first_row=50)]


def planned(folder: Path, tokenizer: Tokenizer, shard: Shard, settings: PlanSettings = SETTINGS) -> Plan:
    return make_plan(folder / str(shard.number), tokenizer, corpus(), shard=shard, settings=settings)


def test_shards_add_up_to_the_corpus(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Every count of each kind, and every text is in one spool; each plan has all rows."""
    whole = planned(tmp_path / "whole", tokenizer, WHOLE)
    shards = [planned(tmp_path, tokenizer, shard) for shard in SPLIT]
    assert [whole.rows] * 3 == [plan.rows for plan in shards]
    counts = [plan.work().counts for plan in shards]
    for name in (field.name for field in fields(WorkCounts)):
        assert getattr(whole.work().counts, name) == sum(getattr(one, name) for one in counts), name
    assert whole.work().counts == WorkCounts(
        total=90,
        skipped=10,
        unusable=8,
        duplicate=36,
        reused=0,
        to_run=36,
        to_run_tokens=counts_tokens(whole),
    )
    keys = [key for plan in shards for rows in plan.spool.values() for key, _ in rows]
    assert (36, 36) == (len(keys), len(set(keys)))
    assert all(each.skipped for each in counts)


def counts_tokens(plan: Plan) -> int:
    to_run = {row["key"]: row["input_tokens"] for row in plan.rows if row["status"] is None}
    return sum(to_run.values())


def test_a_share_is_stable(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """A text is in the same shard whatever stands beside it, and in which batch and order."""
    shard = SPLIT[1]
    texts = [digits(20 + number) for number in range(30)]
    own = make_plan(tmp_path / "all", tokenizer, [make_batch(texts)], shard=shard)
    halves = [make_batch(texts[20:][::-1]), make_batch(texts[:5], first_row=10)]
    some = make_plan(tmp_path / "some", tokenizer, halves, shard=shard)
    keys = {row["key"] for row in some.rows}

    def spooled(plan: Plan) -> set[bytes]:
        return {key for rows in plan.spool.values() for key, _ in rows}

    assert spooled(some) == spooled(own) & keys
    assert spooled(some)


def test_a_long_document_is_in_one_shard_with_all_its_parts(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """It is spooled once, whole."""
    settings = replace(SETTINGS, policy="map_reduce")
    spools = [planned(tmp_path, tokenizer, shard, settings).spool for shard in SPLIT]
    long = [key for spool in spools for key, _ in spool.get("long", [])]
    assert (4, 4) == (len(long), len(set(long)))


def test_a_row_without_a_text_goes_by_its_place() -> None:
    """A corpus of unreadable rows weighs on all shards alike, in one file or in many."""
    keys = pa.array([None, None, None, 7], pa.uint64())
    rows = pa.table({"source": pa.array([0, 0, 1, 0], pa.int32()), "row": [0, 1, 0, 9], "hash_hi": keys})
    assert [0, 1, 1, 7] == numbers_of(rows).tolist()
    assert [0, 1, 1, 7] == numbers_of(rows.to_batches()[0]).tolist()


def test_the_greatest_hash_has_a_shard() -> None:
    """Hashes are unsigned, 64 bits wide."""
    numbers = np.array([2**64 - 1, 2**63], np.uint64)
    for value, number in zip(numbers, (2**64 - 1, 2**63), strict=True):
        held = [bool(shard.holds(np.array([value]))[0]) for shard in SPLIT]
        assert [number % 3 == shard.ordinal for shard in SPLIT] == held


@pytest.mark.parametrize(("given", "shard"), [("1/1", WHOLE), ("2/3", SPLIT[1]), (" 2 / 3 ", SPLIT[1])])
def test_a_shard_is_named_by_number_and_how_many(given: str, shard: Shard) -> None:
    assert shard == parse_shard(given)
    assert given.replace(" ", "") == str(shard)


@pytest.mark.parametrize(
    "given", ["0/3", "4/3", "a/b", "3", "", "1/0", "-1/3", "1/3/3", "1/10001", "1/" + "9" * 5000, "٢/٣"]
)
def test_what_is_no_shard_is_refused(given: str) -> None:
    """With what to write instead."""
    with pytest.raises(
        UsageError,
        match="is no shard\nGive its number, from 1, and how many there are, at most 10,000: --shard 2/3",
    ):
        parse_shard(given)
