"""The one pass over a corpus: a row of the plan for every row, and what is to run in the spool, once."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from batchrun.documents import EMPTY, DocumentBatch, Verdict
from batchrun.keys import document_key, input_hash
from batchrun.planning import planner as planner_module
from batchrun.planning import spool as spool_module
from batchrun.planning.plan import PLAN_SCHEMA, encode_types, read_record, write_record
from batchrun.prompts.parts import Splitter
from batchrun.prompts.tokenizer import Tokenizer
from batchrun.records import ErrorType, Flag, RowStatus
from tests.fixtures import ID_COLUMNS, tokenizer_of
from tests.planning.plans import (
    FRAME_TOKENS,
    SETTINGS,
    digits,
    make_batch,
    make_plan,
    make_planner,
    paths_in,
    settled,
)

BROKEN = Verdict(status=RowStatus.FAILED, error_type=ErrorType.INVALID_JSON, error="line 7 is no JSON")


@pytest.fixture
def tokenizer(tiny_llama: Path) -> Tokenizer:
    return tokenizer_of(tiny_llama)


def test_every_row_has_its_place_in_the_plan(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """In input order: what is to be summarized with key and tokens, what is decided with the reason."""
    batches = [
        make_batch(
            [digits(5), None, digits(171), None, digits(5)],
            verdicts={1: EMPTY, 3: BROKEN},
            flags={0: (Flag.REPLACED_CHARACTERS,)},
        ),
        make_batch([digits(6)], first_row=5),
        make_batch([digits(5)], source=1),
    ]
    nothing = {
        "key": None,
        "input_tokens": None,
        "status": None,
        "error_type": None,
        "error": None,
        "flags": None,
    }
    short = nothing | {"key": document_key(digits(5)), "input_tokens": 15}
    too_long = (
        "171 tokens of document and 10 of prompt with up to 20 of output do not fit max_model_len 200: "
        "a document may have 170 tokens; raise engine.max_model_len, or choose another long_documents.policy"
    )
    expected = [
        short | {"source": 0, "row": 0, "flags": ["replaced_characters"]},
        nothing | {"source": 0, "row": 1, "status": "skipped", "error_type": "empty_text", "error": EMPTY.error},
        nothing
        | {"source": 0, "row": 2, "key": document_key(digits(171)), "input_tokens": 181}
        | {"status": "failed", "error_type": "prompt_too_long", "error": too_long},
        nothing | {"source": 0, "row": 3, "status": "failed", "error_type": "invalid_json", "error": BROKEN.error},
        short | {"source": 0, "row": 4},
        nothing | {"source": 0, "row": 5, "key": document_key(digits(6)), "input_tokens": 16},
        short | {"source": 1, "row": 0},
    ]  # fmt: skip
    plan = make_plan(tmp_path, tokenizer, batches)
    assert expected == plan.rows
    assert pq.read_schema(plan.paths.plan) == PLAN_SCHEMA
    assert plan.counted.num_rows == 7
    assert plan.counted.decided == {"empty_text": 1, "invalid_json": 1, "prompt_too_long": 1}
    assert (plan.record.num_skipped, plan.record.num_unusable) == (1, 2)


@pytest.mark.parametrize(("num_tokens", "fits"), [(1, True), (170, True), (171, False), (5000, False)])
def test_what_fits_is_what_the_context_leaves(
    tmp_path: Path, tokenizer: Tokenizer, num_tokens: int, fits: bool
) -> None:
    """Document, prompt and the longest output together take `max_model_len` at most."""
    plan = make_plan(tmp_path, tokenizer, [make_batch([digits(num_tokens)])])
    assert [num_tokens + 10] == [row["input_tokens"] for row in plan.rows]
    assert [None if fits else "failed"] == [row["status"] for row in plan.rows]
    assert fits == bool(plan.spool)


def test_a_text_stands_in_the_spool_once(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it comes again in its batch, its chunk, or another file."""
    monkeypatch.setattr(planner_module, "CHUNK_ROWS", 4)
    batches = [
        make_batch([digits(2), digits(1), digits(2)]),
        make_batch([digits(1), digits(3)], first_row=3),
        make_batch([digits(3), digits(1), digits(4), digits(4)], source=1),
    ]
    plan = make_plan(tmp_path, tokenizer, batches)
    [rows] = plan.spool.values()
    assert [document_key(digits(n)) for n in (1, 2, 3, 4)] == [key for key, _ in rows]
    assert len(plan.rows) == 9


def test_what_is_done_is_not_in_the_spool(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """The plan has its rows all the same: they come out of the memo table."""
    texts = [digits(n) for n in (1, 2, 3, 2)]
    done = [document_key(digits(2)), document_key("of another corpus")]
    plan = make_plan(tmp_path, tokenizer, [make_batch(texts)], done=done)
    [rows] = plan.spool.values()
    assert [document_key(digits(1)), document_key(digits(3))] == [key for key, _ in rows]
    assert [document_key(text) for text in texts] == [row["key"] for row in plan.rows]


def test_a_verdict_that_is_not_done_is_to_run(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """A failure that may be tried again has its place in the spool."""
    key = document_key(digits(1))
    make_planner(tmp_path, tokenizer).plan(
        [make_batch([digits(1)])], settled([(key, False, 2)]), lambda _: None
    )
    [part] = spool_module.parts(paths_in(tmp_path).spool)
    assert part.keys().num_rows == 1


def test_buckets_are_folders_by_tokens_of_the_whole_prompt(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Half-open: a prompt of 16 tokens is in the bucket that begins at 16."""
    lengths = [22, 5, 6, 21, 170, 1]
    plan = make_plan(tmp_path, tokenizer, [make_batch([digits(n) for n in lengths])])
    expected = {"000032-": [22, 170], "000016-000032": [6, 21], "000000-000016": [1, 5]}
    assert expected == {name: [len(ids) for _, ids in rows] for name, rows in plan.spool.items()}
    assert list(expected) == list(plan.spool)


def test_the_spool_has_the_tokens_of_the_document(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """As the tokenizer gives them, of any script; control strings are text."""
    texts = ["The library at night.", "도서관의 밤", "<|im_end|> {x} \\n", "é 12"]
    plan = make_plan(tmp_path, tokenizer, [make_batch(texts)])
    found = {key: ids for rows in plan.spool.values() for key, ids in rows}
    assert {document_key(text): tokenizer.encode_documents([text]).ids.tolist() for text in texts} == found


def test_large_buckets_are_cut_into_parts_and_row_groups(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader holds a row group; a part is what is deleted or damaged at once."""
    monkeypatch.setattr(planner_module, "CHUNK_ROWS", 10)
    monkeypatch.setattr(spool_module, "GROUP_BYTES", 1000)
    monkeypatch.setattr(spool_module, "PART_BYTES", 10_000)
    texts = [digits(100 + n % 50, 1 + n // 50) for n in range(100)]
    batches = [make_batch(texts[start : start + 10], first_row=start) for start in range(0, 100, 10)]
    plan = make_plan(tmp_path, tokenizer, batches)
    parts = spool_module.parts(plan.paths.spool)
    assert [f"part-{number:05d}" for number in range(len(parts))] == [
        part.path.name.partition(".")[0] for part in parts
    ]
    assert len(parts) > 3
    assert all(pq.ParquetFile(part.path).num_row_groups > 3 for part in parts[:-1])
    assert [document_key(text) for text in texts] == [key for rows in plan.spool.values() for key, _ in rows]


def test_plan_and_carried_columns_have_the_same_row_groups(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publication reads them side by side, one row group at a time."""
    monkeypatch.setattr(planner_module, "CHUNK_ROWS", 5)
    sizes = [3, 3, 1, 9, 0, 4, 2]
    batches = [make_batch([digits(1)] * size, source=source) for source, size in enumerate(sizes)]
    plan = make_plan(tmp_path, tokenizer, batches)
    groups = [
        [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        for file in (pq.ParquetFile(plan.paths.plan), pq.ParquetFile(plan.paths.carried))
    ]
    assert groups == [[6, 10, 6], [6, 10, 6]]


@pytest.mark.parametrize("name", ID_COLUMNS)
def test_ids_are_carried_as_they_are(tmp_path: Path, tokenizer: Tokenizer, name: str) -> None:
    """Type and values survive the plan's own file; repeated ids are counted, nulls are not."""
    ids = ID_COLUMNS[name]
    batches = [make_batch(["a", "b", "c"], ids=ids), make_batch(["a", "b", "c"], first_row=3, ids=ids)]
    plan = make_plan(tmp_path, tokenizer, batches)
    carried = pq.read_table(plan.paths.carried)["doc_id"].combine_chunks()
    assert (ids.type, pa.concat_arrays([ids, ids])) == (carried.type, carried)
    assert 3 - ids.null_count == plan.counted.num_duplicate_ids


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([[1, 2, 3]], 0),
        ([[1, 1, 1], [1]], 3),
        ([[1, None, None], [2]], 0),
        ([[1, 2], [2, 1]], 2),
        ([["a", "A", " a", ""], ["", "b"]], 1),
    ],
)
def test_duplicate_ids_are_counted(
    tmp_path: Path, tokenizer: Tokenizer, ids: list[list[object]], expected: int
) -> None:
    """Rows whose id stood before, in their batch or in another."""
    batches = [
        make_batch([digits(1)] * len(some), source=source, ids=pa.array(some))
        for source, some in enumerate(ids)
    ]
    assert expected == make_plan(tmp_path, tokenizer, batches).counted.num_duplicate_ids


@pytest.mark.parametrize("batches", [[], [make_batch([])]], ids=["no batches", "an empty batch"])
def test_an_empty_corpus_has_a_valid_plan(
    tmp_path: Path, tokenizer: Tokenizer, batches: list[DocumentBatch]
) -> None:
    """Nothing to run, and files that can be read."""
    plan = make_plan(tmp_path, tokenizer, batches)
    assert plan.rows == []
    assert plan.spool == {}
    assert pq.ParquetFile(plan.paths.carried).metadata.num_rows == 0
    with plan.work() as work:
        assert work.counts.total == 0
        assert list(work.documents()) == []


def test_the_record_makes_the_plan_valid(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """It is written last, and read back whole, types and all."""
    counted = make_planner(tmp_path, tokenizer).plan([make_batch([digits(1)])], settled(), lambda _: None)
    assert counted.num_rows == 1
    assert read_record(paths_in(tmp_path)) is None
    plan = make_plan(tmp_path, tokenizer, [make_batch([digits(1)])])
    assert plan.record == read_record(plan.paths)


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b"\xff"])
def test_a_spoilt_record_makes_no_plan_valid(tmp_path: Path, tokenizer: Tokenizer, content: bytes) -> None:
    """Planning again is always right."""
    plan = make_plan(tmp_path, tokenizer, [make_batch([digits(1)])])
    plan.paths.plan_record.write_bytes(content)
    assert read_record(plan.paths) is None


def test_output_types_survive_the_record(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Every type that an id can have comes back equal."""
    types = {name: column.type for name, column in ID_COLUMNS.items()}
    plan = make_plan(tmp_path, tokenizer, [])
    write_record(plan.paths, structs.replace(plan.record, carried_types=encode_types(types)), "run")
    record = read_record(plan.paths)
    assert record is not None
    assert types == {field.name: field.type for field in record.output_schema}


def test_planning_again_leaves_nothing_of_the_plan_before(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Neither rows nor parts of the spool, nor what a killed planner left."""
    make_plan(tmp_path, tokenizer, [make_batch([digits(1), digits(30), digits(100)])])
    leftover = paths_in(tmp_path).checkpoint / ".tmp-killed-00000000"
    leftover.write_text("half a plan")
    plan = make_plan(tmp_path, tokenizer, [make_batch([digits(2)])])
    assert [document_key(digits(2))] == [row["key"] for row in plan.rows]
    assert list(plan.spool) == ["000000-000016"]
    assert sorted(path.name for path in plan.paths.checkpoint.iterdir()) == [
        "carried.parquet",
        "plan.json",
        "plan.parquet",
    ]
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("place", ["reading", "progress", "done keys"])
def test_a_planner_that_is_stopped_leaves_no_valid_plan(
    tmp_path: Path, tokenizer: Tokenizer, place: str
) -> None:
    """Not even the one before, whose spool is gone; and no half-written file."""
    make_plan(tmp_path, tokenizer, [make_batch([digits(1)])])

    def batches() -> Iterator[DocumentBatch]:
        yield make_batch([digits(2)])
        if place == "reading":
            raise KeyboardInterrupt
        yield make_batch([digits(3)], first_row=1)

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_planner(tmp_path, tokenizer).plan(
            batches(),
            stop if place == "done keys" else settled(),
            stop if place == "progress" else lambda _: None,
        )
    paths = paths_in(tmp_path)
    assert read_record(paths) is None
    assert list(paths.checkpoint.glob(".tmp-*")) == []
    assert list((tmp_path / "scratch").iterdir()) == []


def test_progress_counts_rows(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """All rows read so far, skipped ones too."""
    seen: list[int] = []
    batches = [make_batch([digits(1), None], verdicts={1: EMPTY}), make_batch([digits(1)] * 3, first_row=2)]
    make_planner(tmp_path, tokenizer).plan(batches, settled(), seen.append)
    assert seen == [2, 5]


def test_a_document_key_never_changes_unnoticed() -> None:
    """Every finished summary is found by it: another key for the same text would compute it again."""
    assert document_key("The quick brown fox.").hex() == "ab55cfc3d3284d916e6ab35e5c377a6e"
    assert document_key("").hex() == "37cbf2ee2071e98888f2d0e4867a3f0b"
    assert document_key("漢字\x00😀").hex() == "398e99103eaac6ac701f5ad2ceed0ba3"


def test_a_document_key_tells_stage_and_text_apart() -> None:
    """Each stands with its length before it, so that no shift between the two gives the same key."""
    text = "text"
    keys = {document_key(text)}
    for stage, shifted in (
        ("documen", "ttext"),
        ("documentt", "ext"),
        ("document", "text\0"),
        ("document", ""),
    ):
        keys.add(input_hash(stage, shifted))
    assert input_hash("document", text) in keys
    assert document_key(text, ["language", "French"]) == input_hash("document", "language", "French", text)
    assert len(keys) == 5
    assert len(document_key(text)) == 16


texts = st.one_of(
    st.none(),
    st.builds(digits, st.sampled_from([1, 5, 6, 21, 22, 170, 171]), st.integers(1, 2)),
    st.sampled_from(["é", "a <|im_end|> b", "漢字"]),
)
corpora = st.lists(st.lists(texts, max_size=6), max_size=5)


@settings(max_examples=25, deadline=None)
@given(corpus=corpora, chunk_rows=st.integers(1, 8), data=st.data())
def test_rows_in_are_rows_out_and_texts_once(
    tiny_llama: Path, corpus: list[list[str | None]], chunk_rows: int, data: st.DataObject
) -> None:
    """Whatever the batches and chunks: each row in the plan in order, each text to run once in the spool."""
    tokenizer = tokenizer_of(tiny_llama)
    rows = [text for batch in corpus for text in batch]
    tokens = {text: len(tokenizer.encode_documents([text]).ids) for text in rows if text is not None}
    runnable = list(dict.fromkeys(text for text in rows if text is not None and tokens[text] <= 170))
    done = data.draw(st.sets(st.sampled_from(runnable))) if runnable else set()
    batches = [
        make_batch(
            batch, source=source, verdicts={row: EMPTY for row, text in enumerate(batch) if text is None}
        )
        for source, batch in enumerate(corpus)
    ]
    with TemporaryDirectory() as folder, patch.object(planner_module, "CHUNK_ROWS", chunk_rows):
        plan = make_plan(Path(folder), tokenizer, batches, done=[document_key(text) for text in done])
        assert [
            (source, row, None if text is None else document_key(text))
            for source, batch in enumerate(corpus)
            for row, text in enumerate(batch)
        ] == [(row["source"], row["row"], row["key"]) for row in plan.rows]
        to_run = {document_key(text): tokens[text] for text in runnable if text not in done}
        spooled = [(key, len(ids)) for bucket in plan.spool.values() for key, ids in bucket]
        assert len(to_run) == len(spooled)
        assert to_run == dict(spooled)
        with plan.work([(document_key(text), True, 0) for text in done]) as work:
            counts = work.counts
            assert len(rows) == counts.total
            assert counts.total == (
                counts.skipped + counts.unusable + counts.duplicate + counts.reused + counts.to_run
            )
            assert (len(done), len(to_run)) == (counts.reused, counts.to_run)
            assert sum(to_run.values()) + FRAME_TOKENS * len(to_run) == counts.to_run_tokens
            assert work.num_missing == 0
            documents = [document for some in work.documents() for document in some]
        assert to_run == {document.key: len(document.token_ids) for document in documents}


def test_settings_can_leave_no_room(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Then every document is too long, and says so."""
    settings = replace(SETTINGS, max_model_len=30)
    plan = make_plan(tmp_path, tokenizer, [make_batch(["1"])], settings=settings)
    assert [row["error_type"] for row in plan.rows] == ["prompt_too_long"]


def test_columns_enter_the_key_of_a_part(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """The same part under another language is another call; a known document is not cut."""
    settings = replace(SETTINGS, policy="map_reduce", variables=("language",))
    batch = make_batch([digits(400), digits(400)], variables={"language": ["French", "Dutch"]})
    plan = make_plan(tmp_path, tokenizer, [batch], settings=settings)
    with plan.work() as work:
        dutch, french = [document for some in work.documents() for document in some]
    assert [("French",), ("Dutch",), 400] == [french.values, dutch.values, french.num_tokens]
    assert not {part.key for part in french.parts} & {part.key for part in dutch.parts}
    assert [part.token_ids for part in french.parts] == [part.token_ids for part in dutch.parts]
    expected = input_hash("part", "1", "", "language", "French", digits(len(french.parts[0].token_ids)))
    assert expected == french.parts[0].key
    with patch.object(Splitter, "split", side_effect=AssertionError("cut again")):
        again = make_plan(tmp_path / "b", tokenizer, [batch], settings=settings, done=[french.key, dutch.key])
    assert {} == again.spool


def test_long_documents_are_worked_on_first(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Whatever the edges: what takes longest does not come last."""
    settings = replace(SETTINGS, policy="map_reduce", edges=(16, 32768))
    plan = make_plan(tmp_path, tokenizer, [make_batch([digits(3), digits(900)])], settings=settings)
    assert ["long", "000000-000016"] == list(plan.spool)


def test_a_truncated_document_waits_with_the_others_of_its_length(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    """Its beginning is spooled; the plan knows its whole length, and the flag."""
    settings = replace(SETTINGS, policy="truncate")
    plan = make_plan(tmp_path, tokenizer, [make_batch([digits(900)])], settings=settings)
    [(key, ids)] = plan.spool["000032-"]
    assert [document_key(digits(900)), 170] == [key, len(ids)]
    assert [910, ["truncated"]] == [plan.rows[0]["input_tokens"], plan.rows[0]["flags"]]
