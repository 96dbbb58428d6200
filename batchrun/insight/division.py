"""How the time in which a run's engine was there divides: idle, badly fed, tail, and work, which reads or writes.

Diagnosis, page and course have it from here. An interval between two samples is first idle, then badly fed, then at
the tail; what is left is the time of an engine that has all the work it can take. How that divides is the profile's
word, else that of the timeline itself: the seconds of intervals as a sum of prompt tokens, output tokens and steps,
each at a price.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from batchrun.insight.intervals import FREE, Array, Intervals, intervals_of
from batchrun.insight.prices import Pricing, pricing_of
from batchrun.profile import Profile
from batchrun.run_record import RunRecord
from batchrun.telemetry.timeline import SCHEMA


@dataclass(frozen=True, kw_only=True)
class Division:
    """Seconds by interval. `input_tokens`: of a prompt, weighted by tokens. `pricing`: None, reading and writing can not
    be told apart.
    """

    intervals: Intervals
    pricing: Pricing | None
    input_tokens: float

    @cached_property
    def feeding(self) -> Array:
        """Work waited for the engine, which had room and no queue: of starved steps, or as the gauges say. An engine that
        was empty begins with what there is: of its steps the starved ones alone.
        """
        return self._waited + self._badly_fed * self._busy

    @cached_property
    def idle(self) -> Array:
        """The engine had nothing to compute, though it was not the feeding."""
        return self.intervals.idle - self._waited

    @cached_property
    def tail(self) -> Array:
        """Places stood empty when nothing was given to the engine any more."""
        return np.minimum(self.intervals.empty_places, (1 - self._badly_fed) * self._busy)

    @cached_property
    def work(self) -> Array:
        """All that is left."""
        return (1 - self._badly_fed) * self._busy - self.tail

    @cached_property
    def costs(self) -> tuple[Array, Array] | None:
        """Seconds of reading and of writing that the tokens of each interval take by the pricing. Only their sums over
        many say something of a night: what a step of vLLM reads may be counted some steps later.
        """
        if self.pricing is None:
            return None
        reading = self.intervals.prefill * self.pricing.of_prompt_token(self.input_tokens)
        return reading, self.pricing.writing(self.intervals)

    def read_and_written(self, seconds: Array) -> tuple[float, float] | None:
        """So many of each interval as reading and writing, in the proportion of what their tokens cost."""
        if self.costs is None:
            return None
        weights = seconds / np.maximum(self.intervals.seconds, 1e-12)
        whole = float(seconds.sum())
        reading, writing = (float((cost * weights).sum()) for cost in self.costs)
        both = reading + writing
        return (whole * reading / both, whole * writing / both) if both > 0 else None

    @property
    def _starved(self) -> Array:
        starved: Array = np.minimum(self.intervals.starved / np.maximum(self.intervals.steps, 1.0), 1.0)
        return starved

    @property
    def _waited(self) -> Array:
        is_badly_fed = self.intervals.can_take_more | (self._starved > FREE)
        return self.intervals.idle * is_badly_fed

    @property
    def _badly_fed(self) -> Array:
        has_room = self.intervals.can_take_more & ~self.intervals.was_empty
        return np.asarray(np.maximum(self._starved, has_room) * (self.intervals.steps > 0), dtype=float)

    @property
    def _busy(self) -> Array:
        return self.intervals.seconds - self.intervals.idle


def divide(
    timeline: pa.Table,
    *,
    max_num_seqs: int,
    profile: Profile | None,
    input_tokens: float,
    has_own_clock: bool = False,
    is_doubted: bool = False,
) -> Division:
    """Of a timeline, which may be empty. `input_tokens`: of a prompt, weighted by tokens. `is_doubted`: the profile is no
    measure of the run (`ceiling.doubt_of`): then the night's own prices come first.
    """
    intervals = intervals_of(timeline, max_num_seqs, has_own_clock=has_own_clock)
    pricing = pricing_of(intervals, profile, is_doubted=is_doubted)
    return Division(intervals=intervals, pricing=pricing, input_tokens=input_tokens)


UNDIVIDED = divide(SCHEMA.empty_table(), max_num_seqs=1, profile=None, input_tokens=1.0)
"""Of a run that has left no timeline."""


def mean_input(record: RunRecord) -> float:
    """Tokens of a prompt, where no request says them: a document in parts has several, none longer than the context."""
    mean_document = record.tokens.input / record.rows.computed if record.rows.computed else 1.0
    return min(mean_document, float(record.limits.get("max_model_len", mean_document)))
