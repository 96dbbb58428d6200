"""Requests without documents: prompts of random tokens, for measuring an engine."""

from collections.abc import Sequence
from itertools import count

import numpy as np

from batchrun.records import Request

SEED = 20261130


class RandomPrompts:
    """The same ones in every process. `vocabulary` is the number of the model's token ids, of which the middle is
    drawn from: the ends hold control tokens and rare ones. `name` begins the ids of the requests.
    """

    def __init__(self, vocabulary: int, name: str) -> None:
        self._random = np.random.default_rng(SEED)
        self._ids = (vocabulary // 8, max(vocabulary * 3 // 4, vocabulary // 8 + 1))
        self._name = name
        self._numbers = count()

    def tokens(self, number: int) -> list[int]:
        """What no other prompt begins with."""
        tokens: list[int] = self._random.integers(*self._ids, size=number).tolist()
        return tokens

    def request(self, prompt: Sequence[int], max_tokens: int, *, ignore_eos: bool = False) -> Request:
        """A greedy one, under an id of its own."""
        return Request(
            request_id=self.next_id(),
            prompt_token_ids=list(prompt),
            document_span=(0, len(prompt)),
            max_tokens=max_tokens,
            temperature=0.0,
            top_p=1.0,
            seed=0,
            ignore_eos=ignore_eos,
        )

    def next_id(self) -> str:
        return f"{self._name}-{next(self._numbers)}"
