"""A tokenizer of letters, and the settings of calls under it."""

from collections.abc import Sequence
from typing import Any

from batchrun.prompts.frames import Prompts
from batchrun.prompts.template import ChatTemplate
from batchrun.prompts.token_batch import TokenBatch, from_lists
from batchrun.worker.calls import CallSettings


class Letters:
    """Token n is the n-th letter; other characters have none."""

    def encode_documents(self, texts: Sequence[str]) -> TokenBatch:
        return from_lists([[ord(one) - 97 for one in text.lower() if "a" <= one <= "z"] for text in texts])

    def decode(self, outputs: Sequence[Sequence[int]]) -> list[str]:
        return [letters(tokens) for tokens in outputs]


def letters(tokens: Sequence[int]) -> str:
    return "".join(chr(97 + token) for token in tokens)


_TOKENIZER: Any = Letters()
SETTINGS = CallSettings(
    prompts=Prompts("", ChatTemplate(before=[1, 2], after=[3]), _TOKENIZER),
    tokenizer=_TOKENIZER,
    max_model_len=100,
    max_tokens=5,
    temperature=0.0,
    top_p=1.0,
    seed=0,
)
