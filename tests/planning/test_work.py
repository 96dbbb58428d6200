"""What is left to run: the plan, less what has a verdict, found in the spool."""

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from batchrun.documents import EMPTY
from batchrun.errors import DamageError, ExitCode
from batchrun.keys import document_key
from batchrun.planning import planner as planner_module
from batchrun.planning import spool as spool_module
from batchrun.planning import work as work_module
from batchrun.planning.work import WorkCounts
from batchrun.prompts.tokenizer import Tokenizer
from batchrun.records import Document
from tests.fixtures import tokenizer_of
from tests.planning.plans import Plan, digits, make_batch, make_plan


@pytest.fixture
def tokenizer(tiny_llama: Path) -> Tokenizer:
    return tokenizer_of(tiny_llama)


def key(num_tokens: int) -> bytes:
    return document_key(digits(num_tokens))


def plan_lengths(folder: Path, tokenizer: Tokenizer, *lengths: int) -> Plan:
    return make_plan(folder, tokenizer, [make_batch([digits(length) for length in lengths])])


def documents_of(plan: Plan, *verdicts: tuple[bytes, bool, int]) -> list[Document]:
    with plan.work(verdicts) as work:
        return [document for some in work.documents() for document in some]


def lengths_of(plan: Plan, *verdicts: tuple[bytes, bool, int]) -> list[int]:
    return [len(document.token_ids) for document in documents_of(plan, *verdicts)]


def test_every_row_is_counted_once(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Skipped, unusable, duplicate, reused or to run; tokens are those of the prompts to run."""
    texts = [digits(1), None, digits(171), digits(1), digits(2), digits(3), digits(2), digits(171), digits(4)]
    plan = make_plan(tmp_path, tokenizer, [make_batch(texts, verdicts={1: EMPTY})])
    verdicts = [(key(1), True, 0), (key(3), False, 2), (key(9), True, 0)]
    expected = WorkCounts(
        total=9, skipped=1, unusable=2, duplicate=2, reused=1, to_run=3, to_run_tokens=12 + 13 + 14
    )
    with plan.work(verdicts) as work:
        assert expected == work.counts
        assert work.num_missing == 0


def test_documents_are_what_the_planner_saw(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Key, tokens without the prompt, and the failed attempts so far."""
    texts = ["The library at night.", "도서관의 밤", "short"]
    plan = make_plan(tmp_path, tokenizer, [make_batch(texts)])
    verdicts = [(document_key(texts[0]), False, 3), (document_key(texts[2]), True, 1)]
    expected = [
        Document(
            key=document_key(text),
            token_ids=tokenizer.encode_documents([text]).ids.tolist(),
            attempts=attempts,
        )
        for text, attempts in ((texts[0], 3), (texts[1], 0))
    ]
    assert sorted(expected, key=lambda document: document.key) == sorted(
        documents_of(plan, *verdicts), key=lambda document: document.key
    )


def test_documents_that_begin_alike_come_together(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Whatever their buckets: here each is the beginning of the next."""
    plan = plan_lengths(tmp_path, tokenizer, 3, 100, 8, 1, 7, 50, 2)
    assert lengths_of(plan) == [1, 2, 3, 7, 8, 50, 100]


def test_what_begins_alike_comes_together_from_many_parts(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts are merged MERGED_PARTS at a time, for all buckets together; those after them follow."""
    monkeypatch.setattr(planner_module, "CHUNK_ROWS", 5)
    monkeypatch.setattr(spool_module, "PART_BYTES", 600)
    lengths = [n for start in range(5) for n in range(20 + start, 70, 5)]
    batches = [
        make_batch([digits(n) for n in lengths[start : start + 5]], first_row=start)
        for start in range(0, len(lengths), 5)
    ]
    plan = make_plan(tmp_path, tokenizer, batches)
    assert 32 >= len(spool_module.parts(plan.paths.spool)) > 8
    assert sorted(lengths) == lengths_of(plan)
    monkeypatch.setattr(work_module, "MERGED_PARTS", 8)
    assert sorted(lengths) != lengths_of(plan)
    assert sorted(lengths) == sorted(lengths_of(plan))


def test_for_an_engine_that_pads_buckets_come_one_after_the_other(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    """That of the longest documents first."""
    plan = plan_lengths(tmp_path, tokenizer, 3, 100, 8, 1, 7, 50, 2)
    with plan.work([]) as work:
        portions = list(work.documents(by_bucket=True))
    assert [len(one.token_ids) for some in portions for one in some] == [50, 100, 7, 8, 1, 2, 3]


def test_documents_are_found_across_groups_and_parts(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever row groups, parts and portions end, and whatever is left out between."""
    monkeypatch.setattr(planner_module, "CHUNK_ROWS", 10)
    monkeypatch.setattr(spool_module, "GROUP_BYTES", 1200)
    monkeypatch.setattr(spool_module, "PART_BYTES", 9_000)
    monkeypatch.setattr(work_module, "DOCUMENTS_AT_ONCE", 2)
    lengths = list(range(30, 90))
    batches = [
        make_batch([digits(n) for n in lengths[start : start + 10]], first_row=start)
        for start in range(0, 60, 10)
    ]
    plan = make_plan(tmp_path, tokenizer, batches)
    assert len(spool_module.parts(plan.paths.spool)) > 1
    left = [n for n in lengths if n % 7 not in (1, 2) and n not in range(40, 60)]
    verdicts = [(key(n), n not in left, n) for n in lengths]
    with plan.work(verdicts) as work:
        portions = list(work.documents())
    assert max(map(len, portions)) == 2
    assert [(key(n), n, n) for n in left] == [
        (document.key, len(document.token_ids), document.attempts) for some in portions for document in some
    ]


def test_a_portion_has_so_many_tokens_at_most(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that memory is bounded where documents are long; one that is longer comes by itself."""
    monkeypatch.setattr(work_module, "TOKENS_AT_ONCE", 100)
    plan = plan_lengths(tmp_path, tokenizer, 40, 50, 20, 150, 30, 60)
    with plan.work() as work:
        portions = [[len(document.token_ids) for document in some] for some in work.documents()]
    assert [[20], [30, 40], [50], [60], [150]] == portions


def test_nothing_is_left_when_all_is_done(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Also where a verdict came after the plan was made."""
    plan = plan_lengths(tmp_path, tokenizer, 1, 2)
    with plan.work([(key(1), True, 0), (key(2), True, 4)]) as work:
        assert (work.counts.reused, work.counts.to_run, work.counts.to_run_tokens) == (2, 0, 0)
        assert list(work.documents()) == []


def test_a_part_that_is_gone_is_missed(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Its documents are counted as missing; those of other parts come all the same."""
    plan = plan_lengths(tmp_path, tokenizer, 1, 2, 10, 100)
    [part] = (plan.paths.spool / "000000-000016").iterdir()
    part.unlink()
    with plan.work([(key(1), True, 0)]) as work:
        assert (work.counts.to_run, work.num_missing) == (3, 1)
        assert [len(document.token_ids) for some in work.documents() for document in some] == [10, 100]


def test_a_spool_that_is_gone_is_missed(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """It can be made again from the corpus."""
    plan = plan_lengths(tmp_path, tokenizer, 1, 2)
    spool_module.remove(plan.paths.spool)
    with plan.work() as work:
        assert (work.counts.to_run, work.num_missing) == (2, 2)


def test_the_outline_is_of_what_is_to_run(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Documents and prompt tokens by bucket, half-open; padding shares beside them."""
    plan = plan_lengths(tmp_path, tokenizer, 5, 6, 21, 22, 100, 3)
    with plan.work([(key(100), True, 0)]) as work:
        outline = work.outline((16, 32), 100)
        assert outline.documents_by_bucket == {"0–16": 2, "16–32": 2, "32+": 1, "long": 0}
        assert outline.tokens_by_bucket == {"0–16": 28, "16–32": 47, "32+": 32, "long": 0}
        assert pytest.approx(outline.padding_without_buckets) == 1 - 107 / (5 * 32)
        assert pytest.approx(outline.padding_with_buckets) == 1 - 107 / (2 * 15 + 2 * 31 + 32)


def test_the_outline_of_nothing(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Every bucket is shown, empty; there is no padding."""
    with make_plan(tmp_path, tokenizer, []).work() as work:
        outline = work.outline((16,), 100)
    assert {"0–16": 0, "16+": 0, "long": 0} == outline.documents_by_bucket == outline.tokens_by_bucket
    assert (outline.padding_without_buckets, outline.padding_with_buckets) == (0.0, 0.0)


def damaged_copies(path: Path, num: int) -> Iterator[int]:
    """Put one flipped bit after another into a file; yields where, and mends it at the end."""
    whole = path.read_bytes()
    chance = random.Random(path.name)  # noqa: S311 - the same places in every run
    try:
        for _ in range(num):
            place = chance.randrange(len(whole))
            spoilt = bytearray(whole)
            spoilt[place] ^= 1 << chance.randrange(8)
            path.write_bytes(spoilt)
            yield place
    finally:
        path.write_bytes(whole)


def outcome(plan: Plan) -> list[Document] | str:
    """The documents to run, or why there are none."""
    try:
        return documents_of(plan)
    except DamageError as error:
        return error.reason


@pytest.mark.parametrize("file", ["plan.parquet", "part-00000.*.parquet"])
def test_a_flipped_bit_is_found_or_harmless(tmp_path: Path, tokenizer: Tokenizer, file: str) -> None:
    """Nothing is run from a file that does not hold what was written to it, and nothing else is raised."""
    plan = plan_lengths(tmp_path, tokenizer, *range(40, 100))
    expected = documents_of(plan)
    [path] = tmp_path.rglob(file)
    outcomes = [outcome(plan) for _ in damaged_copies(path, 40)]
    damages = [found for found in outcomes if isinstance(found, str)]
    assert len(damages) > 10
    assert {f"{path} is damaged or gone"} == {found.partition(": ")[0] for found in damages}
    assert all(expected == found for found in outcomes if not isinstance(found, str))


def test_damage_says_what_to_do(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """The pages are checked against their checksums; the run ends resumable, and leaves no scratch."""
    plan = plan_lengths(tmp_path, tokenizer, *range(40, 100))
    chunk = pq.ParquetFile(plan.paths.plan).metadata.row_group(0).column(2)
    assert chunk.path_in_schema == "hash_hi"
    data = bytearray(plan.paths.plan.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    plan.paths.plan.write_bytes(data)
    with pytest.raises(DamageError) as caught:
        plan.work()
    assert "checksum" in caught.value.reason
    assert (
        caught.value.hint
        == "Submit the corpus again: the plan is made anew, and nothing that is finished is computed again."
    )
    assert ExitCode.INTERRUPTED == caught.value.exit_code == 75
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("content", [None, b"", b"PAR1"])
def test_a_plan_that_is_gone_is_damage(tmp_path: Path, tokenizer: Tokenizer, content: bytes | None) -> None:
    """Its record says that it is there."""
    plan = plan_lengths(tmp_path, tokenizer, 1)
    plan.paths.plan.unlink()
    if content is not None:
        plan.paths.plan.write_bytes(content)
    with pytest.raises(DamageError, match=r"plan\.parquet is damaged or gone"):
        plan.work()


def test_another_file_under_our_name_is_damage(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """A plan of other columns is not what was written, nor is a part of the spool with another's bytes."""
    plan = plan_lengths(tmp_path, tokenizer, 1, 20)
    first, second = spool_module.parts(plan.paths.spool)
    kept = first.path.read_bytes()
    first.path.write_bytes(second.path.read_bytes())
    with pytest.raises(DamageError, match="its bytes are not those it was named for"):
        plan.work()
    first.path.write_bytes(kept)
    plan.paths.plan.write_bytes(plan.paths.carried.read_bytes())
    with pytest.raises(DamageError, match="its columns are not those written"):
        plan.work()
