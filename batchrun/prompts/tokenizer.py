"""The model's tokenizer: documents to token ids in batch calls, and token ids back to text."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer as HuggingFaceTokenizer

from batchrun.errors import ConfigError
from batchrun.prompts.fast import fast_encoder
from batchrun.prompts.token_batch import TokenBatch, from_lists


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
        self._fast = fast_encoder(self._slow.to_str())

    @property
    def is_fast(self) -> bool:
        return self._fast is not None

    def encode_documents(self, texts: list[str]) -> TokenBatch:
        """Encode texts as plain text: control strings in them stay text. No lone surrogates."""
        if self._fast is not None:
            return self._fast.encode(texts)
        self._slow.encode_special_tokens = True
        encoded = self._slow.encode_batch_fast(texts, add_special_tokens=False)
        return from_lists([encoding.ids for encoding in encoded])

    def encode_template(self, text: str) -> list[int]:
        """Encode a piece of the rendered chat template: control strings in it are control tokens."""
        self._slow.encode_special_tokens = False
        ids: list[int] = self._slow.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, outputs: Sequence[Sequence[int]]) -> list[str]:
        """Token ids to text, without control tokens; each output is decoded whole, once."""
        decoded: list[str] = self._slow.decode_batch([list(ids) for ids in outputs], skip_special_tokens=True)
        return decoded
