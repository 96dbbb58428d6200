"""Figures of two runs or benches beside each other, and which of them differ by more than noise."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from batchrun.insight.bootstrap import Difference, Interval
from batchrun.insight.proportions import Pairs, Share, share_chance, share_difference
from batchrun.insight.student import LEVEL

"""How often something is called different where nothing is, over all figures of a comparison together."""


class Good(StrEnum):
    """Which way a figure should go."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


class Verdict(StrEnum):
    """`HIGHER` and `LOWER` are of figures that have no good side. `NOT_JUDGED`: a single value of each, or too few."""

    BETTER = "better"
    WORSE = "worse"
    HIGHER = "higher"
    LOWER = "lower"
    WITHIN_NOISE = "within noise"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """`unit` is empty for a plain number; one that `counts` is a share of rows, known with its number of them."""

    name: str
    unit: str
    good: Good
    what: str
    counts: bool = False


_LOWER, _HIGHER, _NEITHER = Good.LOWER, Good.HIGHER, Good.NEITHER
METRICS = {
    metric.name: metric
    for metric in (
        Metric(name="rows_failed", unit="", good=_LOWER, counts=True, what="rows that failed, of those that have a verdict"),
        Metric(name="rows_retried", unit="", good=_LOWER, counts=True, what="documents tried again, of those that the engine was asked for"),
        Metric(name="rows_pending", unit="", good=_LOWER, counts=True, what="rows without a verdict, of all but skipped ones"),
        Metric(name="rows_changed", unit="", good=_NEITHER, counts=True, what="texts whose summary is another one, of those with a verdict in both"),
        Metric(name="requests_failed", unit="", good=_LOWER, counts=True, what="requests that the engine failed, of all"),
        Metric(name="prefill_tokens_per_second", unit="tokens/s", good=_HIGHER, what="prompt tokens computed, none from the prefix cache, over the run"),
        Metric(name="decode_tokens_per_second", unit="tokens/s", good=_HIGHER, what="output tokens written, over the run"),
        Metric(name="tokens_recomputed", unit="tokens", good=_LOWER, what="tokens computed again"),
        Metric(name="preemptions", unit="", good=_LOWER, what="sequences that the engine preempted"),
        Metric(name="engine_deaths", unit="", good=_LOWER, what="engines that died and were started again"),
        Metric(name="kv_cache_usage", unit="%", good=_NEITHER, what="share of the KV cache in use, the mean while sequences ran"),
        Metric(name="ceiling_share", unit="%", good=_HIGHER, what="of what the engine's profile says can be reached"),
        Metric(name="seconds_planning", unit="s", good=_LOWER, what="time of planning"),
        Metric(name="seconds_loading", unit="s", good=_LOWER, what="time of loading the model"),
        Metric(name="seconds_running", unit="s", good=_LOWER, what="time in which the engine worked"),
        Metric(name="seconds_publishing", unit="s", good=_LOWER, what="time of publication"),
        Metric(name="seconds_per_document", unit="s", good=_LOWER, what="of the machine, all phases, by documents that ended"),
        Metric(name="cost_per_1000_documents", unit="", good=_LOWER, what="the same in money, with --price"),
        Metric(name="queue_p50", unit="ms", good=_LOWER, what="from queued to scheduled, median"),
        Metric(name="ttft_p50", unit="ms", good=_LOWER, what="from queued to the first token, median"),
        Metric(name="ttft_p95", unit="ms", good=_LOWER, what="the same, 95th percentile"),
        Metric(name="tpot_p50", unit="ms", good=_LOWER, what="time of an output token after the first, median"),
        Metric(name="itl_p95", unit="ms", good=_LOWER, what="95th percentile of a request's times between tokens, median"),
        Metric(name="output_tokens", unit="tokens", good=_NEITHER, what="of a request, mean"),
    )
}  # fmt: skip
"""By name, in the order in which they are shown."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of A and of B: of requests of one `group`, or of the whole (None). A share is a number from 0 to 1.

    `num_a` and `num_b` are samples: requests, rows, or spans of the timeline. `spread_a`, `spread_b` and
    `change` (B less A) are intervals of 95 %, each by itself; `chance`: of a change as large, either way, where there
    is none. The verdict is by all figures of a comparison together. `of_a` and `of_b` are the rows
    that a share is of.
    """

    metric: str
    group: str | None = None
    a: float | None
    b: float | None
    num_a: int = 1
    num_b: int = 1
    spread_a: Interval | None = None
    spread_b: Interval | None = None
    change: Interval | None = None
    percent: Interval | None = None
    chance: float | None = None
    of_a: int | None = None
    of_b: int | None = None
    num_texts: int | None = None
    is_paired: bool = False
    verdict: Verdict = Verdict.NOT_JUDGED

    @property
    def of_rows(self) -> tuple[float | None, float | None]:
        """The values; of a share those of rows, also where those that are shown and judged are of texts."""
        if self.of_a and self.of_b:
            return self.num_a / self.of_a, self.num_b / self.of_b
        return self.a, self.b

    @property
    def unit(self) -> str:
        return METRICS[self.metric].unit

    @property
    def percent_change(self) -> float | None:
        """In percent of A; None where A is 0 or one is not known."""
        if self.a is None or self.b is None or not self.a:
            return None
        return 100 * (self.b - self.a) / self.a


def single(metric: str, a: float | None, b: float | None, *, group: str | None = None) -> Figure:
    """One value of each: nothing says how much of the difference is noise."""
    numbers = int(a is not None), int(b is not None)
    return Figure(metric=metric, group=group, a=a, b=b, num_a=numbers[0], num_b=numbers[1])


def of_shares(metric: str, a: Share, b: Share, *, group: str | None = None) -> Figure:
    """Two shares of rows."""
    return Figure(
        metric=metric,
        group=group,
        a=a.value,
        b=b.value,
        num_a=a.number,
        num_b=b.number,
        spread_a=a.interval,
        spread_b=b.interval,
        change=share_difference(a, b),
        chance=share_chance(a, b) if a.of and b.of else None,
        of_a=a.of,
        of_b=b.of,
    )


def of_pairs(figure: Figure, pairs: Pairs) -> Figure:
    """The figure, whose numbers are of rows, with the shares of the texts behind them: copies of a text fail together."""
    return replace(
        figure,
        a=pairs.a.value,
        b=pairs.b.value,
        num_texts=pairs.a.of,
        spread_a=pairs.a.interval,
        spread_b=pairs.b.interval,
        change=pairs.difference,
        chance=pairs.chance,
    )


def of_difference(figure: Figure, found: Difference) -> Figure:
    """The figure with what a bootstrap says of it."""
    return replace(
        figure,
        spread_a=found.of_a,
        spread_b=found.of_b,
        change=found.difference,
        percent=found.percent,
        chance=found.chance,
    )


def judged(figures: Iterable[Figure]) -> tuple[Figure, ...]:
    """With their verdicts, by the procedure of Benjamini and Hochberg (1995): many figures are looked at, and of a
    hundred each by itself five would differ where nothing does. Nothing of two equal runs is then called different in
    19 of 20 comparisons.
    """
    found = tuple(figures)
    chances = sorted(figure.chance for figure in found if figure.chance is not None)
    passing = [chance for rank, chance in enumerate(chances, 1) if chance <= LEVEL * rank / len(chances)]
    threshold = max(passing, default=-1.0)
    return tuple(replace(figure, verdict=_verdict(figure, threshold)) for figure in found)


def _verdict(figure: Figure, threshold: float) -> Verdict:
    if figure.chance is None or figure.a is None or figure.b is None:
        return Verdict.NOT_JUDGED
    if figure.chance > threshold or figure.a == figure.b:
        return Verdict.WITHIN_NOISE
    good, is_higher = METRICS[figure.metric].good, figure.b > figure.a
    if good is Good.NEITHER:
        return Verdict.HIGHER if is_higher else Verdict.LOWER
    return Verdict.BETTER if is_higher == (good is Good.HIGHER) else Verdict.WORSE
