"""A long text is cut at its structure, into the largest parts that fit, and not inside a character."""

import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun.prompts.parts import Splitter, TextPart, title_of
from tests.fixtures import tokenizer_of
from tests.prompts.kinds import KINDS, tokenizers_of

SECTION = (
    "{n} Section\n==========\n\nIt says one thing. It says another thing! And asks a third?\n\n"
    + "A line.\n" * 5
    + "\n"
)


def split(tiny_llama: Path, text: str, room: int, overlap_share: float = 0.05) -> list[TextPart]:
    tokenizer = tokenizer_of(tiny_llama)
    token_ids = tokenizer.encode_documents([text]).ids
    return Splitter(tokenizer, overlap_share=overlap_share).split(text, token_ids, room)


def checked(parts: list[TextPart], text: str, room: int) -> list[TextPart]:
    """Whole, in order, overlapping or touching, none too long, and the tokens are those of the text."""
    assert [0, len(text)] == [parts[0].start, parts[-1].end]
    assert all(two.start <= one.end < two.end for one, two in pairwise(parts))
    assert all(0 < len(part.token_ids) <= room for part in parts)
    return parts


@settings(max_examples=60, deadline=None)
@given(
    pieces=st.lists(
        st.sampled_from(
            ["word ", "Sentence. ", "\n", "\n\n", "# Heading\n", "漢字。", "한국어 ", "🎉", "x" * 50]
        ),
        min_size=30,
        max_size=300,
    ),
    room=st.integers(16, 200),
    overlap_share=st.sampled_from([0.0, 0.05, 0.5]),
)
def test_parts_are_the_whole_text_and_fit(
    tiny_llama: Path, pieces: list[str], room: int, overlap_share: float
) -> None:
    """Whatever the text."""
    text = "".join(pieces)
    checked(split(tiny_llama, text, room, overlap_share), text, room)


def test_cuts_are_at_structure(tiny_llama: Path) -> None:
    """Before a heading where one is near the end of the room."""
    text = "".join(SECTION.format(n=n) for n in range(30))
    parts = checked(split(tiny_llama, text, 420, 0.0), text, 420)
    assert all(text[part.start :].lstrip().split("\n")[0].endswith("Section") for part in parts)


@pytest.mark.parametrize(
    ("sentence", "end"),
    [
        ("这是第一句话。", "。"),
        ("これは文です！", "！"),
        ("이것은 문장입니다. ", ". "),
        ("A sentence ends. ", ". "),
    ],
)
def test_sentences_of_any_script_are_kept_whole(tiny_llama: Path, sentence: str, end: str) -> None:
    """Where a text has sentences and no lines, parts end with one."""
    text = sentence * 200
    parts = checked(split(tiny_llama, text, 200, 0.0), text, 200)
    assert len(parts) > 2
    assert all(text[: part.end].rstrip().endswith(end.strip()) for part in parts)


def test_no_part_is_a_stump(tiny_llama: Path) -> None:
    """What would be left for a small last part is evened out with the part before."""
    for extra in range(0, 100, 7):
        text = "One more sentence here. " * (200 + extra)
        parts = checked(split(tiny_llama, text, 300), text, 300)
        assert all(len(part.token_ids) >= 60 for part in parts)


def test_parts_are_filled(tiny_llama: Path) -> None:
    """But for the last ones, with no more than the searched share and a piece left."""
    text = "One more sentence here. " * 1000
    assert all(len(part.token_ids) >= 0.7 * 300 for part in split(tiny_llama, text, 300)[:-2])


def test_parts_overlap_a_little(tiny_llama: Path) -> None:
    """By pieces, at most the share of the room."""
    text = "".join(f"Sentence number {n} is here. " for n in range(1000))
    parts = checked(split(tiny_llama, text, 300, 0.2), text, 300)
    shared = [one.end - two.start for one, two in pairwise(parts)]
    assert all(0 < characters <= 0.2 * 300 * 6 for characters in shared)


def test_a_text_that_grew_keeps_its_earlier_parts(tiny_llama: Path) -> None:
    """All but the last two, which may be evened out."""
    text = "".join(SECTION.format(n=n) for n in range(40))
    before = split(tiny_llama, text, 400)
    after = split(tiny_llama, text + SECTION.format(n="another") * 3, 400)
    spans = [[(part.start, part.end) for part in parts] for parts in (before, after)]
    assert spans[0][:-2] == spans[1][: len(before) - 2]


@pytest.mark.parametrize(
    "text", ["x" * 300_000, "漢" * 100_000, "👨‍👩‍👧‍👦" * 5000, "\n" * 100_000, "a b " * 100_000]
)
def test_a_text_without_structure_is_cut_in_bounded_time(tiny_llama: Path, text: str) -> None:
    """By tokens, never inside a character."""
    started = time.monotonic()
    checked(split(tiny_llama, text, 1800), text, 1800)
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("text", "values", "title"),
    [
        ("# The Title\n\ntext", {}, "The Title"),
        ("\n\n## Second level ##\n", {}, "Second level"),
        (".. SPDX-License-Identifier: GPL\n\n=====\nOver\n=====\n\ntext", {}, "Over"),
        ("Under\n-----\ntext", {}, "Under"),
        ("Just a sentence.\nAnd another.", {}, ""),
        ("", {}, ""),
        ("# In the text", {"title": " From the column "}, "From the column"),
        ("# In the text", {"title": " "}, "In the text"),
        ("#" * 5000, {}, ""),
        ("# " + "long " * 100, {}, ("long " * 100)[:120]),
    ],
)
def test_the_title_is_the_column_or_the_first_heading(text: str, values: dict[str, str], title: str) -> None:
    """Of Markdown and reStructuredText, past blank lines, comments and overlines."""
    assert title == title_of(text, values)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("overlap_share", [0.0, 0.2])
def test_texts_are_cut_under_any_tokenizer(kind: str, overlap_share: float) -> None:
    """Also one that does not keep the text's bytes: then parts are encoded by themselves, and fit all the same."""
    tokenizer, _ = tokenizers_of(kind)
    text = "".join(SECTION.format(n=n) for n in range(20)) + "한국어 문장입니다. " * 50
    token_ids = tokenizer.encode_documents([text]).ids
    parts = Splitter(tokenizer, overlap_share=overlap_share).split(text, token_ids, 150)
    checked(parts, text, 150)
    assert len(parts) > 5


@pytest.mark.parametrize("kind", KINDS)
def test_places_are_where_tokens_begin(kind: str) -> None:
    """The tokens before a place are the text before it; or it is not known where they begin."""
    tokenizer, _ = tokenizers_of(kind)
    text = "The quick foxes, 漢字 한국어 é ü.\n\n    code {x}\\n 🎉"
    token_ids = tokenizer.encode_documents([text]).ids
    places = tokenizer.token_places(text, token_ids)
    if places is None:
        return
    assert [0, len(text), len(token_ids) + 1] == [places[0], places[-1], len(places)]
    for number, place in enumerate(places.tolist()):
        if place >= 0:
            assert text[:place] == tokenizer.decode([token_ids[:number].tolist()])[0]


def test_places_are_known_for_byte_level_tokenizers(tiny_llama: Path) -> None:
    """Of the kind that most models have today; and not where a normalizer changes the text."""
    tokenizer = tokenizer_of(tiny_llama)
    assert tokenizer.token_places("a é", tokenizer.encode_documents(["a é"]).ids) is not None
    known = {kind for kind in KINDS if tokenizers_of(kind)[0]._byte_lengths is not None}
    assert {"GPT-2", "SmolLM", "Llama 3", "Qwen"} <= known
    assert not {"Llama 2", "BERT", "T5"} & known
    qwen, _ = tokenizers_of("Qwen")
    for text in ("e\u0301", "\u00e9"):
        found = qwen.token_places(text, qwen.encode_documents([text]).ids)
        assert (found is None) == (len(text) == 2)
