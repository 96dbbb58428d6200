"""The estimate: how long work takes by a profile, before a run and while it goes on.

Before, it is the profile's time for what is to be read and written. While a run goes on, what is left by the
profile is scaled by how the measured time compares with the profile's time for what is done: a machine that
is twice as slow as when it was calibrated is noticed after the first hundredth of the documents, whatever
their order, since each is weighed by its length.

    left = (profile(all) - profile(done)) × measured seconds / profile(done)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from batchrun.profile import Profile

EDGES = tuple(step << power for power in range(4, 20) for step in (4, 5, 6, 7))
"""Of the lengths that an estimate tells apart, 64, 80, 96, 112, 128 and so on: within a quarter a mean stands for all."""
ENOUGH = 0.02
"""The share of the documents from which the run's own speed is believed."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Work to come. `inputs` are pairs of (number of prompts, input tokens of each), `documents` give an output
    each, of `output_tokens` on average; `running` is how many sequences run at once at most.
    """

    inputs: tuple[tuple[float, float], ...]
    documents: int
    output_tokens: float
    running: int

    @property
    def input_tokens(self) -> float:
        return sum(number * tokens for number, tokens in self.inputs)


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a run has done: `documents` that ended, with `input_tokens` of theirs; `running` that are in the
    engine or between two slices; `read` and `written` are the engine's tokens, of those that run too, a prompt
    once however often it was read. `seconds` since it started.
    """

    documents: int
    input_tokens: int
    running: int
    read: int
    written: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Time for `expected`, by `profile`."""

    profile: Profile
    expected: Expected

    @property
    def seconds(self) -> float:
        """Of all that is expected: reading by length, then writing with as many sequences as run at once."""
        return self.reading_seconds + self._writing_seconds(
            self.expected.documents, self.expected.output_tokens
        )

    @property
    def reading_seconds(self) -> float:
        return sum(n * self.profile.prefill_seconds(tokens) for n, tokens in self.expected.inputs if tokens)

    def seconds_left(self, done: Done) -> float:
        """Of what `done` leaves. Before `ENOUGH` of the documents it is the profile's, after that the run's own."""
        if done.documents >= self.expected.documents:
            return 0.0
        if done.documents < ENOUGH * self.expected.documents or done.seconds <= 0:
            return max(0.0, self.seconds - done.seconds)
        learnt = self._learnt(done)
        spent = learnt.spent_seconds(done)
        if spent <= 0:  # what is done was done by earlier runs
            return max(0.0, self.seconds - done.seconds)
        return max(0.0, learnt.seconds - spent) * done.seconds / spent

    def spent_seconds(self, done: Done) -> float:
        """The profile's time for what is done, that in flight too: the share of the ceiling is this by `seconds`."""
        reading = self._reading_seconds_of(done) if done.read else 0.0
        return min(reading, self.reading_seconds) + done.written / self._decode_rate

    def _reading_seconds_of(self, done: Done) -> float:
        """At the mean length of what is done, and corrected for its mixture of lengths as far as that is known:
        the nearer this mean is to that of all, the more it is the mixture of all.
        """
        mean = self._mean_length
        length = done.input_tokens / done.documents if done.documents and done.input_tokens else mean
        mixture = self.reading_seconds * self.profile.prefill_rate(mean) / self.expected.input_tokens
        likeness = min(length / mean, mean / length)
        return done.read / self.profile.prefill_rate(length) * float(mixture**likeness)

    def ceiling_share(self, done: Done) -> float | None:
        """The share of the ceiling that the run has reached so far; None before anything is done."""
        spent = self.spent_seconds(done)
        return spent / done.seconds if done.seconds > 0 and spent > 0 else None

    def _learnt(self, done: Done) -> "Estimate":
        """With outputs as long as they are here. What runs counts as half: those that ended first are the short."""
        outputs = done.written / (done.documents + done.running / 2)
        return replace(self, expected=replace(self.expected, output_tokens=outputs))

    def _writing_seconds(self, documents: int, output_tokens: float) -> float:
        return documents * output_tokens / self._decode_rate

    @property
    def _decode_rate(self) -> float:
        """The best of those measured with no more sequences than run at once here."""
        most = max(1, min(self.expected.running, self.expected.documents))
        reached = [rate for number, rate in self.profile.decode if number <= most]
        return max([*reached, self.profile.decode_rate(most)])

    @property
    def _mean_length(self) -> float:
        return self.expected.input_tokens / max(1.0, sum(number for number, _ in self.expected.inputs))


def inputs_of(
    documents: Sequence[float], tokens: Sequence[float], *, longest: int
) -> tuple[tuple[float, float], ...]:
    """Pairs of (number of prompts, tokens of each) from documents and tokens by bucket.

    Each bucket counts at its mean length; a mean beyond `longest` tokens is that of documents read in parts.
    """
    pairs = []
    for number, total in zip(documents, tokens, strict=True):
        if number:
            mean = total / number
            pairs.append((float(number), mean) if mean <= longest else (total / longest, float(longest)))
    return tuple(pairs)
