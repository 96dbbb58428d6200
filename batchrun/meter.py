"""The meter: drives an engine with one kind of work and reads the rate off a clock.

It knows no more of an engine than the protocol, so that a simulator is measured as vLLM is. The clock is the
engine's own where it has one (`clock`, of a simulator whose time is virtual), else the monotonic one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from batchrun.engines.base import Engine, EngineDeadError, clock_of
from batchrun.errors import EngineUnavailableError
from batchrun.profile import Point
from batchrun.random_prompts import RandomPrompts
from batchrun.records import Completion, FinishReason, Request

FIRST_LENGTH, LENGTH_FACTOR = 128, 4
"""Prompts are measured at 128, 512, 2048, … tokens, and at the longest that the engine takes."""
FILLS = 3
"""How many times the requests of one measurement fill `max_num_batched_tokens`, time permitting."""
PROMPT_TOKENS, OUTPUT_TOKENS = 32, 128
"""Of each sequence while decoding is measured: short prompts, so that all are read in a step or two and then run
together, and outputs long enough that this hardly counts."""
WARM_TOKENS = 16
"""Of outputs before decoding is measured."""
WORTH = 1.02
"""More sequences at once are tried while the rate grows by this factor: less is within what two runs differ."""
HINT = "Lower engine.max_model_len or engine.max_num_seqs in the spec, or see what the engine says: batchrun doctor"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one pass of requests took."""

    completions: list[Completion]
    seconds: float

    @property
    def input_tokens(self) -> int:
        return sum(each.input_tokens for each in self.completions)

    @property
    def output_tokens(self) -> int:
        return sum(len(each.token_ids) for each in self.completions)


class Meter:
    """Measures one engine, which has nothing else to do. `vocabulary` is the number of the model's token ids."""

    def __init__(self, engine: Engine, vocabulary: int) -> None:
        self._engine = engine
        self._clock = clock_of(engine)
        self._prompts = RandomPrompts(vocabulary, "calibrate")
        self.seconds = 0.0  # measured so far, by the engine's clock

    @property
    def _longest(self) -> int:
        """Tokens of a prompt that leaves room for one output token, in the context and the KV cache."""
        limits = self._engine.limits
        return max(1, min(limits.max_model_len, limits.kv_tokens) - 1)

    def prefill(self, seconds: float) -> tuple[Point, ...]:
        """Input tokens/s by length of prompt, in about `seconds`, of which each length may have its share.

        The prompts have no beginning in common and one output token each. One of the length is run first: it
        says how many the time allows, and stands for them where it allows no more. There are as many as fill
        the token budget of a step FILLS times. Lengths for which the time does not last are left out.
        """
        points: list[Point] = []
        lengths = self.lengths()
        end = self.seconds + seconds
        self.run([self._request(lengths[0], 1)])
        for place, length in enumerate(lengths):
            if points and self.seconds + length / points[-1][1] > end:
                break
            share = (end - self.seconds) / (len(lengths) - place)
            points.append((length, self.prefill_rate(length, share)))
        return tuple(points)

    def lengths(self) -> list[int]:
        """The lengths that `prefill` measures."""
        lengths, length = [], FIRST_LENGTH
        while length < self._longest:
            lengths.append(length)
            length *= LENGTH_FACTOR
        return [*lengths, self._longest]

    def prefill_rate(self, length: int, seconds: float, budget: int | None = None) -> float:
        """Input tokens/s of prompts of `length`. `budget` are the tokens of a step that are to be filled."""
        first = self.run([self._request(length, 1)])
        wanted = -(-FILLS * (budget or self._engine.limits.max_num_batched_tokens) // length)
        number = min(wanted, int((seconds - first.seconds) / max(first.seconds, 1e-9)))
        reading = self.run([self._request(length, 1) for _ in range(number)]) if number > 0 else first
        return _rate(reading.input_tokens, reading.seconds)

    def decode(self, seconds: float) -> tuple[Point, ...]:
        """Output tokens/s over all of 1, 2, 4, … sequences at once, up to `max_num_seqs`.

        It ends where more sequences do not gain, where they would not fit the KV cache, and after `seconds`.
        """
        points: list[Point] = []
        end = self.seconds + seconds
        self.run([self._request(self._decode_lengths()[0], min(WARM_TOKENS, self._decode_lengths()[1]))])
        for number in self._numbers_of_sequences():
            if points and self.seconds >= end:
                break
            best = max((rate for _, rate in points), default=0.0)
            points.append((number, self.decode_rate(number)))
            if points[-1][1] < WORTH * best:
                break
        return tuple(points)

    def _numbers_of_sequences(self) -> list[int]:
        limits = self._engine.limits
        prompt, output = self._decode_lengths()
        blocks = -(-(prompt + output) // limits.block_size)
        most = max(1, min(limits.max_num_seqs, limits.kv_tokens // limits.block_size // blocks))
        return [*(1 << power for power in range(most.bit_length()) if 1 << power < most), most]

    def _decode_lengths(self) -> tuple[int, int]:
        half = max(1, self._longest // 2)
        return min(PROMPT_TOKENS, half), min(OUTPUT_TOKENS, half)

    def decode_rate(self, number: int) -> float:
        """Output tokens/s over all of `number` sequences that are begun and ended together.

        The time to read as many prompts and write one token each is measured by itself and taken off, and
        so is that token. No output ends early: fewer would run then than the rate is said of.
        """
        prompt, output = self._decode_lengths()
        reading = self.run([self._request(prompt, 1) for _ in range(number)])
        whole = self.run([self._request(prompt, output) for _ in range(number)])
        return self._decode_rate_of(whole, reading)

    def documents(self, requests: Sequence[Request]) -> tuple[float, list[list[int]]]:
        """Output tokens/s of the decoding of these requests, run at once, and their outputs.

        They are read twice before: with some output tokens, so that what an engine compiles for decoding is
        there, then with one: what the prefix cache keeps of them is then the same.
        """
        self.run([self._renamed(request, max_tokens=WARM_TOKENS) for request in requests])
        reading = self.run([self._renamed(request, max_tokens=1) for request in requests])
        renamed = [self._renamed(request) for request in requests]
        whole = self.run(renamed)
        token_ids = {each.request_id: each.token_ids for each in whole.completions}
        return self._decode_rate_of(whole, reading), [token_ids[request.request_id] for request in renamed]

    @staticmethod
    def _decode_rate_of(whole: Reading, reading: Reading) -> float:
        tokens, seconds = whole.output_tokens - reading.output_tokens, whole.seconds - reading.seconds
        if tokens > 0 and seconds > 0:
            return _rate(tokens, seconds)
        return _rate(whole.output_tokens, whole.seconds)

    def run(self, requests: Sequence[Request]) -> Reading:
        """Run requests to their end. Raises EngineUnavailableError where the engine refuses one, or dies."""
        started = self._clock()
        completions: list[Completion] = []
        try:
            for request in requests:
                self._engine.add(request)
            while self._engine.has_unfinished():
                completions += self._engine.step()
        except EngineDeadError as error:
            raise EngineUnavailableError(f"the engine died while it was measured: {error}", HINT) from error
        for each in completions:
            if each.finish_reason is FinishReason.ERROR:
                reason = f"the engine refused a prompt of {each.input_tokens:,} tokens: {each.error}"
                raise EngineUnavailableError(reason, HINT)
        seconds = self._clock() - started
        self.seconds += seconds
        return Reading(completions=completions, seconds=seconds)

    def _request(self, num_tokens: int, max_tokens: int) -> Request:
        return self._prompts.request(self._prompts.tokens(num_tokens), max_tokens, ignore_eos=True)

    def _renamed(self, request: Request, max_tokens: int | None = None) -> Request:
        return replace(
            request, request_id=self._prompts.next_id(), max_tokens=max_tokens or request.max_tokens
        )


def _rate(tokens: int, seconds: float) -> float:
    if seconds <= 0 or tokens <= 0:
        raise EngineUnavailableError(
            f"{tokens:,} tokens took the engine {seconds:g} s: there is no rate to measure",
            "Give the lead engine rates in [engine.options], or calibrate another engine.",
        )
    return tokens / seconds
