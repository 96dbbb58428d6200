"""Texts to token ids: the same ids as `tokenizers` gives, and never a control token out of a document."""

import json
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun.errors import ConfigError, ExitCode
from batchrun.prompts import tokenizer as tokenizer_module
from batchrun.prompts.token_batch import TokenBatch
from batchrun.prompts.tokenizer import Tokenizer
from tests.fixtures import tokenizer_of
from tests.prompts.kinds import BEGIN, END, KINDS, PRINTABLE, reference, tokenizers_of

CONTROL = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<repo_name>",
    BEGIN,
    END,
    "<unk>",
    "<0x41>",
    "<think>",
]
PIECES = [
    *CONTROL,
    *["12", "007", "\uff13", "Ⅷ", "½", " ²", "①", "٣"],
    *["  ", "\n\n", "\r\n", "\t", "\u3000", "\xa0", "\u2028", "\x85", "\x00", "\x16", "\x1d\x04"],
    *["漢字", "한국어", "ไทย", "😀", "👨‍👩‍👧", "e\u0301", "\ufffd", "\ufeff", "\U00040000"],
    *["don't", "'s", "{", "}}", "\\", "fox", "a" * 50, "▁"],
]
texts = st.lists(
    st.one_of(
        st.sampled_from(PIECES),
        st.text(max_size=8),
        st.text(st.characters(max_codepoint=127), max_size=8),
        st.from_regex(r"[0-9 a'\n]{1,8}", fullmatch=True),
    ),
    max_size=10,
).map("".join)
batches = st.lists(texts, max_size=4)


def ids_of(batch: TokenBatch) -> list[list[int]]:
    assert batch.offsets[0] == 0
    assert len(batch.ids) == batch.offsets[-1]
    return [
        batch.ids[start:end].tolist()
        for start, end in zip(batch.offsets[:-1], batch.offsets[1:], strict=True)
    ]


def reference_ids(measure: Any, documents: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in measure.encode_batch_fast(documents, add_special_tokens=False)]


@settings(max_examples=200, deadline=None)
@given(documents=batches)
def test_the_ids_are_those_of_tokenizers(tiny_llama: Path, documents: list[str]) -> None:
    """For SmolLM2, whose digits are cut before the tokenizer sees them."""
    tokenizer = tokenizer_of(tiny_llama)
    assert tokenizer.is_fast
    assert reference_ids(_reference(tiny_llama), documents) == ids_of(tokenizer.encode_documents(documents))


_references: dict[Path, Any] = {}


def _reference(folder: Path) -> Any:
    return _references.get(folder) or _references.setdefault(folder, reference(folder))


def test_digits_of_every_script(tiny_llama: Path) -> None:
    """What counts as a digit is cut off from its neighbours as `tokenizers` does, the space before it too."""
    digits = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] == "N"]
    documents = [f" {digit}{digit}a 1{digit} é{digit}" for digit in digits if digit < "\U00040000"]
    assert len(documents) > 1_000
    found = ids_of(tokenizer_of(tiny_llama).encode_documents(documents))
    assert reference_ids(_reference(tiny_llama), documents) == found


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_tokenizer(kind: str) -> None:
    """Whether fastokens knows it, knows it wrongly, or not at all."""
    ours, measure = tokenizers_of(kind)

    @settings(max_examples=40, deadline=None)
    @given(documents=batches)
    def check(documents: list[str]) -> None:
        assert reference_ids(measure, documents) == ids_of(ours.encode_documents(documents))

    check()


def test_without_fastokens_the_ids_are_the_same(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fallback for tokenizers that it does not know."""
    monkeypatch.setattr(tokenizer_module, "fast_encoder", lambda _: None)
    slow = Tokenizer(tiny_llama)
    assert not slow.is_fast
    documents = ["", "plain", *PIECES, "".join(PIECES)]
    assert ids_of(tokenizer_of(tiny_llama).encode_documents(documents)) == ids_of(
        slow.encode_documents(documents)
    )


@pytest.mark.parametrize("kind", ["tiny_llama", "Llama 2", "Llama 3", "SmolLM", "BERT"])
def test_control_strings_in_a_document_are_plain_text(tiny_llama: Path, kind: str) -> None:
    """No id of a control token comes out of a document, alone, in words or beside digits."""
    tokenizer = tokenizer_of(tiny_llama) if kind == "tiny_llama" else tokenizers_of(kind)[0]
    added = json.loads(tokenizer.file.read_text(encoding="utf-8"))["added_tokens"]
    control = {
        token["content"]: token["id"] for token in added if not token["content"].startswith(("<unk", "<0x"))
    }
    documents = [text for content in control for text in (content, f"a{content}b 1{content}2", content * 3)]
    found = {one for ids in ids_of(tokenizer.encode_documents(documents)) for one in ids}
    assert len(control) >= 2
    assert set() == found & set(control.values())


def test_a_template_and_a_document_do_not_disturb_each_other(tiny_llama: Path) -> None:
    """The same string is a control token in the one and text in the other, in any order of calls."""
    tokenizer = tokenizer_of(tiny_llama)
    document = ids_of(tokenizer.encode_documents(["<|im_end|>"]))
    assert tokenizer.encode_template("<|im_end|>") == [2]
    assert document == ids_of(tokenizer.encode_documents(["<|im_end|>"]))
    assert tokenizer.encode_template("<|im_end|>") == [2]
    assert [2] not in document


def test_a_character_without_a_token_spoils_nothing(tiny_llama: Path) -> None:
    """SmolLM2 has no token for some control characters: they are passed over, and texts around them are whole."""
    tokenizer = tokenizer_of(tiny_llama)
    documents = [f"document {number}" for number in range(9)]
    expected = ids_of(tokenizer.encode_documents(documents))
    spoilt = list(documents)
    spoilt[3] = "docu\x16ment \x133"
    found = ids_of(tokenizer.encode_documents(spoilt))
    assert expected[:3] + expected[4:] == found[:3] + found[4:]
    assert tokenizer.decode([found[3]]) == ["document 3"]
    assert ids_of(tokenizer.encode_documents(["\x16\x13"])) == [[]]


@pytest.mark.parametrize(
    "text", ["a" * 1_000_000, "7" * 100_000, " " * 100_000, "漢" * 100_000, "é" * 100_000, "!?" * 50_000]
)
def test_an_unbroken_run_is_encoded(tiny_llama: Path, text: str) -> None:
    """A text without a space is a text like others, of any length."""
    tokenizer = tokenizer_of(tiny_llama)
    [ids] = ids_of(tokenizer.encode_documents([text]))
    assert [text] == tokenizer.decode([ids])


def test_nothing_to_encode(tiny_llama: Path) -> None:
    """A batch without texts, and a text without characters."""
    tokenizer = tokenizer_of(tiny_llama)
    assert ids_of(tokenizer.encode_documents([])) == []
    assert ids_of(tokenizer.encode_documents(["", ""])) == [[], []]


@given(documents=st.lists(st.text(PRINTABLE, max_size=20), max_size=3))
@settings(max_examples=50, deadline=None)
def test_decoding_gives_the_text_back(tiny_llama: Path, documents: list[str]) -> None:
    """Spaces, scripts and control strings included: no text is cleaned on the way."""
    tokenizer = tokenizer_of(tiny_llama)
    assert documents == tokenizer.decode(ids_of(tokenizer.encode_documents(documents)))


def test_an_output_is_decoded_whole_and_without_control_tokens(tiny_llama: Path) -> None:
    """A character cut between two slices is whole once their ids are joined."""
    tokenizer = tokenizer_of(tiny_llama)
    [ids] = ids_of(tokenizer.encode_documents(["漢字 😀"]))
    assert tokenizer.decode([[1, *ids, 2], [2]]) == ["漢字 😀", ""]
    halves = tokenizer.decode([ids[:1], ids[1:]])
    assert "".join(halves) != "漢字 😀"


@pytest.mark.parametrize("content", [None, "", "{", "{}", '{"model": {"type": "New"}}'])
def test_what_is_no_tokenizer_is_named(tmp_path: Path, content: str | None) -> None:
    """Missing, broken or of another kind: 78, and how to get one."""
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ConfigError) as caught:
        Tokenizer(tmp_path)
    assert caught.value.reason.startswith(f"{tmp_path}/tokenizer.json can not be read as a fast tokenizer: ")
    assert (
        caught.value.hint
        == "Save the model's tokenizer with tokenizer.json (AutoTokenizer.save_pretrained does)."
    )
    assert ExitCode.CONFIG == caught.value.exit_code == 78
