"""Whether two samples differ by more than noise."""

import numpy as np
import pytest

from batchrun.insight.bootstrap import Difference, Statistic, compare, mean, plain, quantile, ratio
from batchrun.insight.figures import Figure, Verdict, judged
from batchrun.insight.proportions import Pairs, Share, share_chance, share_difference
from batchrun.insight.stretches import Integers, crossed, effective, stretches_of
from batchrun.insight.student import two_sided, width

STATISTICS = {"mean": mean, "median": quantile(0.5), "p95": quantile(0.95)}


def lognormal(seed: int, size: int, middle: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(middle, 0.5, size)


def found_in(
    statistic: Statistic,
    a: np.ndarray,
    b: np.ndarray,
    stretches: tuple[Integers, Integers] | None = None,
    *,
    is_paired: bool = False,
) -> Difference:
    found = compare(statistic, a, b, stretches, is_paired=is_paired)
    assert found is not None
    return found


@pytest.mark.parametrize("size", [8, 20, 1000, 30_000])
@pytest.mark.parametrize("share", [0.5, 0.95])
def test_a_quantile_of_the_sample_is_numpys(share: float, size: int) -> None:
    """The smallest value with at least this share up to it, on a grid of the values, too."""
    values = lognormal(size, size)
    assert np.quantile(values, share, method="inverted_cdf") == plain(quantile(share), values)


@pytest.mark.parametrize("statistic", STATISTICS.values(), ids=STATISTICS)
def test_the_interval_holds_the_truth_as_often_as_it_says(statistic: Statistic) -> None:
    """Of 100 pairs of equal samples the interval of the difference holds 0 in about 95."""
    holds = 0
    for seed in range(100):
        found = found_in(statistic, lognormal(2 * seed, 300), lognormal(2 * seed + 1, 300))
        holds += found.difference.low <= 0 <= found.difference.high
    assert 89 <= holds <= 100


@pytest.mark.parametrize("statistic", STATISTICS.values(), ids=STATISTICS)
def test_a_real_difference_is_seen(statistic: Statistic) -> None:
    """A quarter more, with its size in percent; and the other way round it is as much less."""
    a, b = lognormal(7, 2000), lognormal(8, 2000, np.log(1.25))
    up, down = found_in(statistic, a, b), found_in(statistic, b, a)
    assert up.percent is not None
    assert up.percent.low < 25 < up.percent.high
    assert 0 < up.difference.low
    assert down.difference.high < 0
    assert up.chance < 0.001


def test_pairs_see_what_the_spread_of_the_samples_hides() -> None:
    """Two percent on every request, of requests that differ by a factor of ten."""
    a = lognormal(3, 60)
    b = a * 1.02
    assert found_in(mean, a, b).chance > 0.05
    paired = found_in(mean, a, b, is_paired=True)
    assert paired.chance < 0.001
    assert paired.percent is not None
    assert [2.0, 2.0] == pytest.approx([paired.percent.low, paired.percent.high])


def test_the_same_samples_give_the_same_answer() -> None:
    """Drawn by a fixed seed; a sample beside itself differs by nothing, in pairs."""
    a, b = lognormal(4, 100), lognormal(5, 100)
    assert found_in(mean, a, b) == found_in(mean, a, b)
    itself = found_in(quantile(0.95), a, a, is_paired=True)
    assert [0.0, 0.0, 1.0] == [itself.difference.low, itself.difference.high, itself.chance]


def waiting(random: np.random.Generator, size: int) -> tuple[np.ndarray, Integers]:
    """Times of 64 requests at once of which about 32 after one another share their delay."""
    shared = random.lognormal(0, 0.5, size // 32 + 2)
    places = np.arange(size, dtype=np.float64)
    values = shared[(np.arange(size) + random.integers(32)) // 32] * random.lognormal(0, 0.2, size)
    return values, stretches_of(places - 64, places)


@pytest.mark.parametrize("size", [8, 2000])
@pytest.mark.parametrize("statistic", [mean, quantile(0.5)], ids=["mean", "median"])
def test_equal_samples_are_called_different_as_seldom_as_promised(statistic: Statistic, size: int) -> None:
    """Of 100 comparisons of each, few single requests or many that share their delays, not many more than 5 are below
    0.05, and of the twelve figures of a comparison none of them would be called different.
    """
    random = np.random.default_rng(size)
    chances = []
    for _ in range(100):
        if size < 100:
            found = found_in(statistic, random.lognormal(0, 0.5, size), random.lognormal(0, 0.5, size))
        else:
            (a, of_a), (b, of_b) = waiting(random, size), waiting(random, size)
            found = found_in(statistic, a, b, (of_a, of_b))
        chances.append(found.chance)
    assert sum(chance < 0.05 for chance in chances) <= 11
    assert sum(chance < 0.05 / 12 for chance in chances) <= 2


@pytest.mark.parametrize("size", [94, 183, 400])
def test_too_few_stretches_are_not_judged(size: int) -> None:
    """With 64 at once some hundred requests are three waves: nothing tells what two waves differ by."""
    random = np.random.default_rng(size)
    (a, of_a), (b, of_b) = waiting(random, size), waiting(random, size)
    assert compare(mean, a, b, (of_a, of_b)) is None
    assert compare(mean, a[:5], b[:5]) is None


def test_stretches_are_as_long_as_requests_ran_beside_each_other() -> None:
    """One by one they stand for themselves; of a steady 8 at once a request meets 15 others; a burst is one stretch."""
    ends = np.arange(160, dtype=np.float64)
    assert 160 == effective(stretches_of(ends - 0.5, ends))
    assert 9 <= effective(stretches_of(ends - 7.5, ends)) <= 10
    later = ends[:60] + 100
    burst = stretches_of(
        np.concatenate([np.zeros(64), later - 0.5]), np.concatenate([np.arange(64) / 64, later])
    )
    assert [64, 1] == np.bincount(burst)[:2].tolist()
    assert effective(burst) == 124**2 // (64**2 + 60)
    many = np.arange(1000, dtype=np.float64)
    assert 200 == effective(stretches_of(many, many + 0.5))


def test_pairs_share_delays_in_either_run() -> None:
    """Whichever run's requests waited together, in an order of its own, the spread is that of few stretches."""
    random = np.random.default_rng(11)
    places = random.permutation(400)
    of_a, of_b = np.arange(400) // 20, places // 20
    a = random.lognormal(3, 0.1, 400)
    b = a * random.lognormal(0, 0.3, 20)[of_b]
    alone = found_in(mean, a, b, (of_a, of_a), is_paired=True).difference.half
    both = found_in(mean, a, b, (of_a, of_b), is_paired=True).difference.half
    turned = found_in(mean, b, a, (of_b, of_a), is_paired=True).difference.half
    assert both > 1.5 * alone
    assert both == pytest.approx(turned, rel=0.2)
    assert 20 == int(crossed(of_a, of_a).max()) + 1
    assert 200 == int(crossed(of_a, of_b).max()) + 1


def test_students_t_is_his() -> None:
    """The 97.5th percentiles of his table, and the tails of one and of two degrees, which are known in full."""
    table = {1: 12.706, 2: 4.303, 5: 2.571, 6: 2.447, 30: 2.042, 199: 1.972}
    assert list(table.values()) == pytest.approx([width(freedom) for freedom in table], abs=1e-3)
    assert two_sided(3.0, 1) == pytest.approx(1 - 2 * np.arctan(3) / np.pi)
    assert two_sided(3.0, 2) == pytest.approx(1 - 3 / np.sqrt(11))


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


def test_texts_that_fail_in_both_runs_are_no_difference() -> None:
    """Fifty in both and ten more in one are no noise, though two shares of independent rows may differ by that; one
    more is, and as many either way. The interval is narrower than that of shares, and holds what was measured.
    """
    more = Pairs(both=50, only_a=0, only_b=10, none=9940)
    assert more.chance == pytest.approx(2 / 2**10)
    assert share_chance(more.a, more.b) > 0.3
    assert more.difference is not None
    assert 0 < more.difference.low < 0.001 < more.difference.high
    apart = share_difference(more.a, more.b)
    assert apart is not None
    assert more.difference.half < 0.6 * apart.half
    assert 1.0 == Pairs(both=0, only_a=0, only_b=1, none=288).chance
    assert 1.0 == pytest.approx(Pairs(both=5, only_a=7, only_b=7, none=0).chance)
    assert Pairs(both=0, only_a=40_000, only_b=41_000, none=0).chance < 0.001


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
