"""The model's tokenizer: documents to token ids in batch calls, and token ids back to text."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as HuggingFaceTokenizer

from batchrun.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class TokenBatch:
    """Token ids of n texts: text i is `ids[offsets[i]:offsets[i + 1]]`; `offsets` has n + 1 entries."""

    ids: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.int64]

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return np.diff(self.offsets)


class Tokenizer:
    """Encodes with fastokens where it knows the tokenizer, else with `tokenizers`; both give the same ids.

    Not shared between threads.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / "tokenizer.json"
        try:
            self._slow = HuggingFaceTokenizer.from_file(str(self.file))
        except Exception as error:  # tokenizers raises bare Exception
            raise ConfigError(
                f"{self.file} can not be read as a fast tokenizer: {error}",
                "Save the model's tokenizer with tokenizer.json (AutoTokenizer.save_pretrained does).",
            ) from error
        self._slow.no_truncation()
        self._slow.no_padding()
        self._fast = _fastokens(self._slow)

    @property
    def is_fast(self) -> bool:
        return self._fast is not None

    def encode_documents(self, texts: list[str]) -> TokenBatch:
        """Encode texts as plain text: control strings in them stay text. No lone surrogates."""
        if self._fast is not None:
            ids, offsets = self._fast.encode_batch_flat(texts, split_special_tokens=True)
            return TokenBatch(ids=np.frombuffer(ids, np.uint32), offsets=np.frombuffer(offsets, np.int64))
        self._slow.encode_special_tokens = True
        encoded = self._slow.encode_batch_fast(texts, add_special_tokens=False)
        lengths = [len(encoding.ids) for encoding in encoded]
        ids = [encoding.ids for encoding in encoded]
        return TokenBatch(
            ids=np.concatenate([np.asarray(row, np.uint32) for row in ids] or [np.empty(0, np.uint32)]),
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        )

    def encode_template(self, text: str) -> list[int]:
        """Encode a piece of the rendered chat template: control strings in it are control tokens."""
        self._slow.encode_special_tokens = False
        ids: list[int] = self._slow.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, outputs: Sequence[Sequence[int]]) -> list[str]:
        """Token ids to text, without control tokens; each output is decoded whole, once."""
        decoded: list[str] = self._slow.decode_batch([list(ids) for ids in outputs], skip_special_tokens=True)
        return decoded


def _fastokens(slow: HuggingFaceTokenizer) -> Any | None:
    import fastokens

    try:
        return fastokens.Tokenizer.from_json_str(slow.to_str())
    except (ValueError, RuntimeError, NotImplementedError, json.JSONDecodeError):
        return None
