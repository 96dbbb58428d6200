"""How long an output may hold a decode slot: outputs in slices, and what an output comes to with each."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from batchrun.records import Completion, ErrorType, FinishReason, Request
from batchrun.worker.answers import repeats

RUNAWAY_TOKENS = 64
"""An output is looked at after each so many tokens, wherever its slices end: where it repeats itself then, it
ends there.
"""


@dataclass(frozen=True, kw_only=True)
class Residency:
    """`slice_tokens`: of output, in one stay in the engine; `max_share`: of the sequences that run, past their
    first slice, while others wait for theirs.
    """

    slice_tokens: int = 512
    max_share: float = 0.5


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """A stay in the engine that ended: `completion` is the engine's; `output` all of the output by now, with the
    input tokens of the document's own prompt. `number` counts from 0.
    """

    completion: Completion
    output: Completion
    number: int
    is_last: bool


class Slices:
    """An output under way. `request` asks for all of it that is still to come, after earlier slices or none."""

    def __init__(self, request: Request, residency: Residency, seed_of: Callable[[str, int], int]) -> None:
        self._whole = request
        self._residency = residency
        self._seed_of = seed_of
        tokens, num_prompt = request.prompt_token_ids, len(request.prompt_token_ids) - request.num_generated
        self._prompt = tokens[:num_prompt] if request.num_generated else tokens
        self._made = tokens[num_prompt:]
        self._max_tokens = request.num_generated + request.max_tokens
        self._cached_tokens = 0
        self.num_stays = 0  # in the engine, so far
        self.was_admitted = False

    @property
    def request_id(self) -> str:
        return self._whole.request_id

    @property
    def number(self) -> int:
        """Of the slice to come."""
        return len(self._made) // self._residency.slice_tokens

    @property
    def is_first(self) -> bool:
        return not self._made

    def next_request(self) -> Request:
        """The request for the next slice."""
        whole, left = self._whole, self._max_tokens - len(self._made)
        if self.is_first and left <= self._residency.slice_tokens:
            return whole
        return replace(
            whole,
            prompt_token_ids=self._prompt + self._made,
            max_tokens=min(left, self._residency.slice_tokens),
            seed=self._seed_of(whole.request_id, self.number) if whole.temperature else whole.seed,
            num_generated=len(self._made),
        )

    def take(self, completion: Completion) -> Slice:
        """What the engine gave for `next_request`."""
        number, seen = self.number, len(self._made)
        asked = min(self._max_tokens - seen, self._residency.slice_tokens)
        if not self.num_stays:
            self._cached_tokens = completion.cached_tokens
        self.num_stays += 1
        self._made = self._made + completion.token_ids if seen else completion.token_ids
        reason = completion.finish_reason
        is_cut = reason is FinishReason.LENGTH and len(completion.token_ids) >= asked
        is_last = not (is_cut and len(self._made) < self._max_tokens)
        runaway = _runaway(self._made, seen, goes_on=not is_last)
        if runaway is not None and reason in (FinishReason.LENGTH, FinishReason.STOP):
            self._made, reason, is_last = self._made[:runaway], FinishReason.REPETITION, True
        is_whole = is_last and not seen and runaway is None
        output = completion if is_whole else self._output(completion, reason)
        return Slice(completion=completion, output=output, number=number, is_last=is_last)

    def give_up(self, error_type: ErrorType, error: str) -> Slice:
        """The end of an output that is not decoded any further."""
        failed = Completion(
            request_id=self.request_id,
            token_ids=self._made,
            finish_reason=FinishReason.ERROR,
            input_tokens=len(self._prompt),
            cached_tokens=self._cached_tokens,
            error_type=error_type,
            error=error,
        )
        return Slice(completion=failed, output=failed, number=self.number, is_last=True)

    def _output(self, completion: Completion, reason: FinishReason) -> Completion:
        """All of the output by now."""
        return replace(
            completion,
            token_ids=self._made,
            finish_reason=reason,
            input_tokens=len(self._prompt),
            cached_tokens=self._cached_tokens,
        )


def _runaway(token_ids: list[int], seen: int, *, goes_on: bool) -> int | None:
    """The first multiple of RUNAWAY_TOKENS after `seen` at which an output repeats itself and goes on."""
    first = seen // RUNAWAY_TOKENS + 1
    for length in range(first * RUNAWAY_TOKENS, len(token_ids) + goes_on, RUNAWAY_TOKENS):
        if repeats(token_ids[:length]):
            return length
    return None
