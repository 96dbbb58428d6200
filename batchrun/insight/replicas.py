"""Several replicas, each with a shard: when the last has ended, and what is late where one is lost."""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

from batchrun.insight.load import Load
from batchrun.insight.speed import Speed

USUAL = (1, 2, 4, 8)
"""Numbers of replicas that are always told of."""
MOST_REPLICAS = 1024
CERTAIN = 0.99


@dataclass(frozen=True, kw_only=True)
class Overhead:
    """Seconds that each replica takes beside running. `is_planned`: one replica alone finds its plan made."""

    planning: float
    loading: float
    publishing: float
    is_planned: bool

    def of(self, number: int) -> float:
        """Of one of so many replicas; only one that is alone publishes."""
        alone = number == 1
        planning = 0.0 if alone and self.is_planned else self.planning
        return planning + self.loading + (self.publishing if alone else 0.0)

    @property
    def twice(self) -> "Overhead":
        """For twice as many documents."""
        return replace(self, planning=2 * self.planning, publishing=2 * self.publishing, is_planned=False)


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """`number` of them, all started together. `largest_share`: that of the fullest shard, by the mean of all, at most.

    `seconds` until the last has ended, planning and loading told in. One is lost half-way through its running:
    `seconds_replaced` where another machine goes on with its shard at once, `seconds_reduced` where whoever is done
    with its own does (None: there is no other). `lost_documents` had no summary then.
    """

    number: int
    largest_share: float
    seconds: float
    seconds_replaced: float
    seconds_reduced: float | None
    lost_documents: int


def replicas(number: int, load: Load, speed: Speed, overhead: Overhead) -> Replicas | None:
    """None where no speed is known."""
    took = speed.took(load)
    if took is None:
        return None
    largest = largest_share(number, load, speed)
    share = took.seconds / number * largest
    stay = speed.stay_seconds(load)
    whole = overhead.of(number) + share + stay
    again = overhead.loading + stay  # what was in the engine is computed again
    return Replicas(
        number=number,
        largest_share=largest,
        seconds=whole,
        seconds_replaced=whole + again,
        seconds_reduced=None if number == 1 else whole + again + share / 2,
        lost_documents=round(load.documents / number * largest / 2),
    )


def largest_share(number: int, load: Load, speed: Speed) -> float:
    """Of the seconds of a shard, by the mean of all; of `CERTAIN` of corpora no share is larger.

    Documents are drawn by their hashes, so that the sum of their costs c has the mean Σc/n and the variance
    (1 - 1/n)/n Σc² in a share, and the largest of n such sums is that quantile's.
    """
    costs = [
        (one.documents, _cost(one.tokens / one.documents, load, speed))
        for one in load.classes
        if one.documents
    ]
    total = sum(documents * sum(cost) for documents, cost in costs)
    if number == 1 or not total:
        return 1.0
    spread = _output_spread(load)
    squares = sum(
        documents * ((read + written) ** 2 + written**2 * spread) for documents, (read, written) in costs
    )
    deviations = NormalDist().inv_cdf(CERTAIN ** (1 / number))
    return 1 + deviations * math.sqrt((number - 1) * squares) / total


def _cost(tokens: float, load: Load, speed: Speed) -> tuple[float, float]:
    """Seconds to read and to write a document."""
    if speed.profile is None:
        return tokens, 0.0
    rate = speed.profile.decode_rate(speed.running)
    return speed.profile.prefill_seconds(max(1.0, tokens)), load.output_tokens / rate


def _output_spread(load: Load) -> float:
    """The variance of output lengths, by the square of their mean."""
    calls = sum(number for _, number in load.outputs)
    mean = sum(tokens * number for tokens, number in load.outputs) / max(1, calls)
    square = sum(tokens**2 * number for tokens, number in load.outputs) / max(1, calls)
    return square / mean**2 - 1 if mean else 0.0


def running_seconds(window: float, number: int, load: Load, speed: Speed, overhead: Overhead) -> float:
    """Of mean running within a window, of so many replicas together: what `replicas` takes, solved for it."""
    each = max(0.0, window - overhead.of(number) - speed.stay_seconds(load))
    return number * each / largest_share(number, load, speed)


@dataclass(frozen=True, kw_only=True)
class Needed:
    """The fewest replicas that end in `seconds`; with one lost and not replaced, too. None: not even one for each document,
    since each plans and loads.
    """

    seconds: float
    replicas: int | None
    replicas_if_one_is_lost: int | None


def needed(seconds: float, load: Load, speed: Speed, overhead: Overhead) -> Needed | None:
    """None where no speed is known."""
    if not speed.is_known:
        return None
    return Needed(
        seconds=seconds,
        replicas=_fewest(seconds, load, speed, overhead, lost=False),
        replicas_if_one_is_lost=_fewest(seconds, load, speed, overhead, lost=True),
    )


def _fewest(seconds: float, load: Load, speed: Speed, overhead: Overhead, *, lost: bool) -> int | None:
    for number in range(1, min(MOST_REPLICAS, max(1, round(load.documents))) + 1):
        found = replicas(number, load, speed, overhead)
        assert found is not None, "a speed is known"
        ends = found.seconds_reduced if lost else found.seconds
        if ends is not None and ends <= seconds:
            return number
    return None
