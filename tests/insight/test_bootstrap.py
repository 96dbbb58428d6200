"""Whether two samples differ by more than noise."""

import numpy as np
import pytest

from batchrun.insight.bootstrap import Statistic, compare, mean, plain, quantile, ratio
from batchrun.insight.figures import Figure, Verdict, judged
from batchrun.insight.proportions import Share, share_chance, share_difference

STATISTICS = {"mean": mean, "median": quantile(0.5), "p95": quantile(0.95)}


def lognormal(seed: int, size: int, middle: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(middle, 0.5, size)


@pytest.mark.parametrize("size", [8, 20, 1000, 30_000])
@pytest.mark.parametrize("share", [0.5, 0.95])
def test_a_quantile_of_the_sample_is_numpys(share: float, size: int) -> None:
    """The smallest value with at least this share up to it, on a grid of the values, too."""
    values = lognormal(size, size)
    assert np.quantile(values, share, method="inverted_cdf") == plain(quantile(share), values)


@pytest.mark.parametrize("statistic", STATISTICS.values(), ids=STATISTICS)
def test_the_interval_holds_the_truth_as_often_as_it_says(statistic: Statistic) -> None:
    """Of 200 pairs of equal samples the interval of the difference holds 0 in about 95 of 100."""
    holds = 0
    for seed in range(200):
        found = compare(statistic, lognormal(2 * seed, 300), lognormal(2 * seed + 1, 300))
        holds += found.difference.low <= 0 <= found.difference.high
    assert 180 <= holds <= 200


@pytest.mark.parametrize("statistic", STATISTICS.values(), ids=STATISTICS)
def test_a_real_difference_is_seen(statistic: Statistic) -> None:
    """A quarter more, with its size in percent; and the other way round it is as much less."""
    a, b = lognormal(7, 2000), lognormal(8, 2000, np.log(1.25))
    up, down = compare(statistic, a, b), compare(statistic, b, a)
    assert up.percent is not None
    assert up.percent.low < 25 < up.percent.high
    assert 0 < up.difference.low
    assert down.difference.high < 0
    assert up.chance < 0.001


def test_pairs_see_what_the_spread_of_the_samples_hides() -> None:
    """Two percent on every request, of requests that differ by a factor of ten."""
    a = lognormal(3, 60)
    b = a * 1.02
    assert compare(mean, a, b).chance > 0.05
    paired = compare(mean, a, b, is_paired=True)
    assert paired.chance < 0.001
    assert paired.percent is not None
    assert [2.0, 2.0] == pytest.approx([paired.percent.low, paired.percent.high])


def test_the_same_samples_give_the_same_answer() -> None:
    """Drawn by a fixed seed; a sample beside itself differs by nothing, in pairs."""
    a, b = lognormal(4, 100), lognormal(5, 100)
    assert compare(mean, a, b) == compare(mean, a, b)
    itself = compare(quantile(0.95), a, a, is_paired=True)
    assert [0.0, 0.0, 1.0] == [itself.difference.low, itself.difference.high, itself.chance]


def test_requests_that_share_their_delays_count_as_fewer() -> None:
    """Twenty that ran together and waited for the same thing are one observation, not twenty."""
    shared = np.repeat(lognormal(6, 30), 20)
    single = compare(mean, shared, shared).of_a
    together = compare(mean, shared, shared, together=20).of_a
    assert together.half > 3 * single.half


def test_a_ratio_weighs_its_spans() -> None:
    """Tokens a second over spans of unequal length: all tokens by all seconds."""
    spans = np.array([[100.0, 1.0], [900.0, 3.0]])
    assert pytest.approx(250) == plain(ratio, spans)


def test_shares_near_zero_have_an_interval() -> None:
    """None of 100 is up to 4 %; one against none of 100 is noise, twelve are not."""
    nothing = Share(number=0, of=100)
    assert nothing.interval is not None
    assert [0.0, 0.0370] == pytest.approx([nothing.interval.low, nothing.interval.high], abs=1e-4)
    assert share_chance(nothing, Share(number=1, of=100)) > 0.3
    assert share_chance(nothing, Share(number=12, of=100)) < 0.01
    assert share_difference(nothing, Share(number=0, of=0)) is None


def test_newcombes_interval_is_his() -> None:
    """56 of 70 against 48 of 80: his own example, 0.0524 to 0.3339 (1998, table II, method 10)."""
    found = share_difference(Share(number=48, of=80), Share(number=56, of=70))
    assert found is not None
    assert [0.0524, 0.3339] == pytest.approx([found.low, found.high], abs=1e-4)


def figure(chance: float, a: float = 1.0, b: float = 2.0, metric: str = "ttft_p50") -> Figure:
    return Figure(metric=metric, a=a, b=b, num_a=20, num_b=20, chance=chance)


def test_many_figures_are_judged_together() -> None:
    """One of forty below 0.05 is what chance gives; one far below it is not."""
    noise = [figure(0.03), *(figure(0.5) for _ in range(39))]
    assert {Verdict.WITHIN_NOISE} == {each.verdict for each in judged(noise)}
    found = judged([figure(0.001), *noise[1:]])
    assert [Verdict.WORSE, Verdict.WITHIN_NOISE] == [found[0].verdict, found[1].verdict]


@pytest.mark.parametrize(
    ("metric", "a", "b", "verdict"),
    [
        ("ttft_p50", 1, 2, Verdict.WORSE),
        ("ttft_p50", 2, 1, Verdict.BETTER),
        ("decode_tokens_per_second", 1, 2, Verdict.BETTER),
        ("decode_tokens_per_second", 2, 1, Verdict.WORSE),
        ("output_tokens", 1, 2, Verdict.HIGHER),
        ("kv_cache_usage", 2, 1, Verdict.LOWER),
    ],
)
def test_each_metric_has_its_good_side(metric: str, a: float, b: float, verdict: Verdict) -> None:
    """Or none."""
    assert (verdict,) == tuple(each.verdict for each in judged([figure(1e-6, a, b, metric)]))
