"""Small tokenizers of the kinds that models have, trained in milliseconds; and what they can say."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hypothesis import strategies as st
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from batchrun.prompts.tokenizer import Tokenizer

SENTENCES = [
    "The quick brown foxes don't jump 123 times over 45 lazy dogs.",
    "漢字 한국어 é ü ñ",
    "    indented\n\n\ncode {x}\\n",
] * 20
BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
PRINTABLE = st.characters(min_codepoint=0x20, max_codepoint=0x3FFFF, exclude_categories=["Cs"])
"""Characters that SmolLM2 has tokens for, down to single bytes."""
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _byte_level(*steps: Any, prefix_space: bool = False, regex: bool = True, normalizer: Any = None) -> Any:
    """Byte-level BPE, as of GPT-2, Llama 3, Qwen and SmolLM."""
    tokenizer = HuggingFaceTokenizer(models.BPE())
    last = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=regex)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, last])
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=[BEGIN, END], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


def _split(pattern: str) -> Any:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def _begins() -> Any:
    """One whose post-processor adds a token of its own at the beginning."""
    tokenizer = _byte_level(_split(LLAMA_3), regex=False)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, tokenizer.token_to_id(BEGIN))]
    )
    return tokenizer


def _cuts_and_pads() -> Any:
    """One saved with the truncation and padding of its training."""
    tokenizer = _byte_level()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=10)
    return tokenizer


def _adds_words() -> Any:
    """One with added tokens that are no control tokens."""
    tokenizer = _byte_level(pre_tokenizers.Digits(individual_digits=True))
    tokenizer.add_tokens(["fox", "<think>"])
    return tokenizer


def _sentence_pieces() -> Any:
    """BPE with byte fallback and no pre-tokenizer, as of Llama 2."""
    tokenizer = HuggingFaceTokenizer(models.BPE(byte_fallback=True, unk_token=UNKNOWN, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    control = [UNKNOWN, BEGIN, END, *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer.train_from_iterator(SENTENCES, trainers.BpeTrainer(vocab_size=600, special_tokens=control))
    return tokenizer


def _word_pieces() -> Any:
    tokenizer = HuggingFaceTokenizer(models.WordPiece(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=[UNKNOWN, BEGIN, END])
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


def _unigrams() -> Any:
    tokenizer = HuggingFaceTokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    control = [UNKNOWN, BEGIN, END]
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=control, unk_token=UNKNOWN)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


KINDS = {
    "GPT-2": _byte_level,
    "GPT-2 with a space before": lambda: _byte_level(prefix_space=True),
    "SmolLM": lambda: _byte_level(pre_tokenizers.Digits(individual_digits=True)),
    "SmolLM with a space before": lambda: _byte_level(
        pre_tokenizers.Digits(individual_digits=True), prefix_space=True
    ),
    "digits in runs": lambda: _byte_level(pre_tokenizers.Digits(individual_digits=False)),
    "Llama 3": lambda: _byte_level(_split(LLAMA_3), regex=False),
    "Llama 3 with BOS": _begins,
    "Qwen": lambda: _byte_level(
        _split(LLAMA_3.replace("{1,3}", "")), regex=False, normalizer=normalizers.NFC()
    ),
    "Llama 2": _sentence_pieces,
    "BERT": _word_pieces,
    "T5": _unigrams,
    "truncating and padding": _cuts_and_pads,
    "added words": _adds_words,
}


@cache
def tokenizers_of(kind: str) -> tuple[Tokenizer, Any]:
    """Ours, and the one it is measured by, with control strings as plain text."""
    folder = Path(mkdtemp())
    KINDS[kind]().save(str(folder / "tokenizer.json"))
    return Tokenizer(folder), reference(folder)


def reference(folder: Path) -> Any:
    """`tokenizers` itself on a model folder, control strings as plain text."""
    tokenizer = HuggingFaceTokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer
