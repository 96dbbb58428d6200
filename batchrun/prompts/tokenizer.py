"""The model's tokenizer: documents to token ids in batch calls, and token ids back to text."""

from pathlib import Path
from threading import Lock
from unicodedata import is_normalized

import msgspec
import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as HuggingFaceTokenizer

from batchrun.errors import ConfigError
from batchrun.prompts.fast import Encoder, fast_encoder
from batchrun.prompts.token_batch import TokenBatch, from_lists, join

MOST_TOKENS_OF_A_CHARACTER = 4


def byte_lengths(tokenizer: HuggingFaceTokenizer) -> npt.NDArray[np.int64] | None:
    """Bytes of each token of a byte-level vocabulary, whose characters stand for a byte each; None for others.

    The only normalizer that is passed over is NFC, which Qwen's tokenizers have: it leaves most texts alone.
    """
    described = msgspec.json.decode(tokenizer.to_str())
    normalizer, decoder = (described.get(name) or {"type": None} for name in ("normalizer", "decoder"))
    if normalizer["type"] not in {None, "NFC"} or decoder["type"] != "ByteLevel":
        return None
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    lengths = np.zeros(max(vocabulary.values()) + 1, np.int64)
    for token, number in vocabulary.items():
        lengths[number] = len(token)
    return lengths


class Tokenizer:
    """Encodes with fastokens where it agrees with `tokenizers`, else with the latter; the ids are the same.

    May be shared between threads.
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
        self._lock = Lock()  # of `encode_special_tokens`, which is a state of the tokenizer
        self._slow.no_truncation()
        self._slow.no_padding()
        self._byte_lengths = byte_lengths(self._slow)
        fast = fast_encoder(self._slow.to_str())
        self._fast = fast if fast is not None and self._agrees(fast) else None

    @property
    def is_fast(self) -> bool:
        return self._fast is not None

    def encode_documents(self, texts: list[str]) -> TokenBatch:
        """Encode texts as plain text: control strings in them stay text. No lone surrogates."""
        return self._encode_slowly(texts) if self._fast is None else self._encode_fast(self._fast, texts)

    def _encode_fast(self, fast: Encoder, texts: list[str]) -> TokenBatch:
        """Passes over bytes that the vocabulary lacks (SmolLM2's lacks 0x16) as `tokenizers` does: fastokens
        refuses the batch, so halves are tried, down to the texts that hold one. One in 2,000: twice the time.
        """
        try:
            return fast.encode(texts)
        except ValueError:
            if len(texts) == 1:
                return self._encode_slowly(texts)
        middle = len(texts) // 2
        return join([self._encode_fast(fast, texts[:middle]), self._encode_fast(fast, texts[middle:])])

    def _encode_slowly(self, texts: list[str]) -> TokenBatch:
        with self._lock:
            self._slow.encode_special_tokens = True
            encoded = self._slow.encode_batch_fast(texts, add_special_tokens=False)
        return from_lists([encoding.ids for encoding in encoded])

    def _agrees(self, fast: Encoder) -> bool:
        """Whether control strings stay text in `fast` as they do in `tokenizers`.

        Without a pre-tokenizer (Llama 2), fastokens makes control tokens of them.
        """
        added = [token.content for token in self._slow.get_added_tokens_decoder().values()]
        probes = ["<0x41>", *added, *(f"a {content}b" for content in added)]
        try:
            found = fast.encode(probes)
        except ValueError:
            return False
        expected = self._encode_slowly(probes)
        return bool(
            np.array_equal(expected.ids, found.ids) and np.array_equal(expected.offsets, found.offsets)
        )

    def encode_template(self, text: str) -> list[int]:
        """Encode a piece of the rendered chat template: control strings in it are control tokens."""
        with self._lock:
            self._slow.encode_special_tokens = False
            ids: list[int] = self._slow.encode(text, add_special_tokens=False).ids
        return ids

    def token_places(self, text: str, token_ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64] | None:
        """For n tokens of a text n + 1 characters: where each begins, and the end; -1 inside a character.

        None where the tokenizer does not keep the bytes of the text (a normalizer, marks for spaces).
        """
        if self._byte_lengths is None or not is_normalized("NFC", text):
            return None
        bytes_of_tokens = np.concatenate([[0], np.cumsum(self._byte_lengths[token_ids])])
        characters = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        sizes = 1 + sum((characters >= first).astype(np.int64) for first in (0x80, 0x800, 0x10000))
        bytes_of_characters = np.concatenate([[0], np.cumsum(sizes)])
        if bytes_of_tokens[-1] != bytes_of_characters[-1]:
            return None
        places = np.searchsorted(bytes_of_characters, bytes_of_tokens)
        return np.where(bytes_of_characters[places] == bytes_of_tokens, places, -1)

    def whole_characters(self, token_ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Token ids without those at the end that are the beginning of a character only."""
        for end in range(len(token_ids), max(0, len(token_ids) - MOST_TOKENS_OF_A_CHARACTER), -1):
            if not self.decode([token_ids[max(0, end - 8) : end].tolist()])[0].endswith("\ufffd"):
                return token_ids[:end]
        return token_ids

    def spelt_out(self, token_ids: list[int]) -> str:
        """Token ids to text, control tokens as they are written."""
        text: str = self._slow.decode(token_ids, skip_special_tokens=False)
        return text

    def decode(self, outputs: list[list[int]]) -> list[str]:
        """Token ids to text, without control tokens; each output is decoded whole, once.

        By `tokenizers`, which lets go of the GIL; fastokens takes half of the time and holds it.
        """
        decoded: list[str] = self._slow.decode_batch(outputs, skip_special_tokens=True)
        return decoded
