"""Encoding with fastokens, whose speed hangs on the pre-tokenizer.

Byte-level tokenizers that isolate digits first (SmolLM, StarCoder: `Digits`, then `ByteLevel`) miss its
fast scanner: 1.1 M tokens/s on READMEs, 4.0 M once they are cut at their digits. So texts are cut at
their digits here, in numpy, and their pieces encoded without `Digits`: the same ids, since `Digits` cuts
there before `ByteLevel` sees a piece. Texts with other digits than ASCII ones take the equal, slower way.
`benchmarks/tokenizer.py` measures the three.
"""

import json
import unicodedata
from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from batchrun.prompts.token_batch import TokenBatch, from_buffers, interleave

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""The expression that `ByteLevel` with `use_regex` splits by (GPT-2's)."""


class Encoder(Protocol):
    """Texts to ids, control strings in them as plain text."""

    def encode(self, texts: list[str]) -> TokenBatch:
        """Encode texts without lone surrogates."""


def fast_encoder(tokenizer_json: str) -> Encoder | None:
    """The fastest encoder for a tokenizer, or None where fastokens does not know it."""
    config = json.loads(tokenizer_json)
    try:
        return DigitEncoder(config) if _isolates_digits(config) else PlainEncoder(tokenizer_json)
    except (ValueError, RuntimeError, NotImplementedError):
        return None


class PlainEncoder:
    """fastokens as it is."""

    def __init__(self, tokenizer_json: str) -> None:
        import fastokens

        self._tokenizer = fastokens.Tokenizer.from_json_str(tokenizer_json)

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        return from_buffers(*self._tokenizer.encode_batch_flat(texts, split_special_tokens=True))


class DigitEncoder:
    """For tokenizers that isolate digits and are byte-level otherwise."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._pieces = PlainEncoder(
            json.dumps(config | {"pre_tokenizer": config["pre_tokenizer"]["pretokenizers"][1]})
        )

    @cached_property
    def _whole(self) -> PlainEncoder:
        """The tokenizer with `ByteLevel` spelt out as the two steps that it is."""
        digits, byte_level = self._config["pre_tokenizer"]["pretokenizers"]
        split = {"type": "Split", "pattern": {"Regex": GPT2_PATTERN}, "behavior": "Isolated", "invert": False}
        steps = [digits, split, byte_level | {"use_regex": False}]
        return PlainEncoder(
            json.dumps(self._config | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}})
        )

    def encode(self, texts: list[str]) -> TokenBatch:
        is_cut = np.fromiter((_has_only_ascii_digits(text) for text in texts), np.bool_, len(texts))
        if is_cut.all():
            return self._encode_cut(texts)
        cut = [text for text, chosen in zip(texts, is_cut, strict=True) if chosen]
        others = [text for text, chosen in zip(texts, is_cut, strict=True) if not chosen]
        return interleave(self._encode_cut(cut), self._whole.encode(others), is_cut)

    def _encode_cut(self, texts: list[str]) -> TokenBatch:
        """Encode texts cut at their digits; a digit's byte is no part of another character in UTF-8."""
        encoded = [text.encode() for text in texts]
        joined = b"".join(encoded)
        ends = np.concatenate([[0], np.cumsum([len(data) for data in encoded])]).astype(np.int64)
        cuts = _cuts(np.frombuffer(joined, np.uint8), ends)
        pieces = pa.LargeStringArray.from_buffers(len(cuts) - 1, pa.py_buffer(cuts), pa.py_buffer(joined))
        batch = self._pieces.encode(pieces.to_pylist())
        return TokenBatch(ids=batch.ids, offsets=batch.offsets[np.searchsorted(cuts, ends)])


def _has_only_ascii_digits(text: str) -> bool:
    return text.isascii() or not any(map(_may_be_numeric, set(text)))


@cache
def _may_be_numeric(character: str) -> bool:
    """Whether `Digits` may isolate a character beyond ASCII: by its category, or unknown to this Python."""
    return character > "\x7f" and unicodedata.category(character) in {"Nd", "Nl", "No", "Cn"}


def _cuts(characters: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where pieces begin and end: at texts' ends, and before and after each digit."""
    is_digit = (characters >= ord("0")) & (characters <= ord("9"))
    is_cut = np.zeros(len(characters) + 1, np.bool_)
    is_cut[ends] = True
    is_cut[:-1] |= is_digit
    is_cut[1:] |= is_digit
    return np.flatnonzero(is_cut)


def _isolates_digits(config: dict[str, Any]) -> bool:
    """Whether the pre-tokenizer is `Digits` and then `ByteLevel`, with nothing else that could see a digit."""
    steps = (config.get("pre_tokenizer") or {}).get("pretokenizers") or []
    if [step["type"] for step in steps] != ["Digits", "ByteLevel"] or config.get("normalizer") is not None:
        return False
    digits, byte_level = steps
    plain = [token["content"] for token in config["added_tokens"] if not token["special"]]
    return (
        digits["individual_digits"]
        and byte_level["use_regex"]
        and not byte_level["add_prefix_space"]
        and not any(character.isdigit() for content in plain for character in content)
    )
