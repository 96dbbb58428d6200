"""The grammar of `--fail-if`."""

import pytest

from batchrun.cli.compare_text import condition_text
from batchrun.errors import UsageError
from batchrun.insight.conditions import judge, parse_condition
from batchrun.insight.figures import Figure
from batchrun.insight.percentiles import LENGTHS

FIGURES = (
    Figure(metric="rows_failed", a=0.001, b=0.012, num_a=1, num_b=12, of_a=1000, of_b=1000),
    Figure(metric="preemptions", a=0, b=40),
    Figure(metric="kv_cache_usage", a=0.5, b=0.75),
    Figure(metric="rows_changed", a=None, b=0.25, num_a=0, num_b=5, of_b=20),
    Figure(metric="ttft_p95", group="0–1K", a=100, b=105, num_a=50, num_b=50),
    Figure(metric="ttft_p95", group="8K–32K", a=1000, b=1500, num_a=50, num_b=50),
    Figure(metric="itl_p95", group="0–1K", a=None, b=7),
)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("rows_failed > 0.5%", True),
        ("rows_failed > 1.2%", False),
        ("rows_failed >= 1.2%", True),
        ("rows_failed > 11", True),
        ("rows_failed>12", False),
        ("rows_failed > +1000%", True),
        ("rows_failed > +1200%", False),
        ("rows_failed > +10", True),
        ("preemptions > 39", True),
        ("preemptions > +39", True),
        ("preemptions > +1000000%", True),  # from none there is no percentage that it stays below
        ("kv_cache_usage > 70%", True),
        ("kv_cache_usage > 0.8", False),
        ("kv_cache_usage > +49%", True),
        ("rows_changed > 20%", True),
        ("rows_changed > 5", False),
        ("ttft_p95 > +10%", True),
        ("ttft_p95@0-1K > +10%", False),
        ("ttft_p95@8k–32k > +10%", True),
        ("ttft_p95 > 1499.5", True),
        ("ttft_p95 < 104", False),
        ("ttft_p95 < +6%", True),
        ("ttft_p95 < -1%", False),
        ("itl_p95 > 8", False),
        ("itl_p95 > +8%", True),  # nothing was measured that could say otherwise
        ("ceiling_share < 50%", True),
    ],
)
def test_a_condition_holds_or_does_not(text: str, holds: bool) -> None:
    """Of B alone without a sign, against A with one; in any group, unless one is named."""
    assert holds == any(outcome.holds for outcome in judge(parse_condition(text), FIGURES))


def test_both_values_are_told() -> None:
    """And the group, and what was held against the value."""
    small, large = judge(parse_condition("ttft_p95 > +10%"), FIGURES)
    assert ["0–1K", False, 100, 105, 5.0] == [small.group, small.holds, small.a, small.b, small.measured]
    assert ["8K–32K", True, 1000, 1500, 50.0] == [large.group, large.holds, large.a, large.b, large.measured]


def test_what_nothing_can_be_said_of_is_told_as_such() -> None:
    """No group has it; or A is 0, of which there is no percentage."""
    [unknown] = judge(parse_condition("ceiling_share < 50%"), FIGURES)
    assert [True, None, None] == [unknown.holds, unknown.measured, unknown.b]
    assert "nothing was measured" in condition_text(unknown)
    [from_none] = judge(parse_condition("preemptions > +10%"), FIGURES)
    assert [True, None, 0, 40] == [from_none.holds, from_none.measured, from_none.a, from_none.b]
    assert "preemptions > +10%: holds: A 0, B 40, measured from 0 (not judged)" == condition_text(from_none)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rows_faild > 1", "Did you mean 'rows_failed'?"),
        ("delta > 1", "Did you mean"),
        ("rows_failed", "is no condition"),
        ("rows_failed > ", "is no condition"),
        ("rows_failed = 3", "is no condition"),
        ("rows_failed > 1 > 2", "is no condition"),
        ("ttft_p95 > 10%", "write a sign: 'ttft_p95 > +10%'"),
        ("preemptions > 10%", "is a number, not a share"),
        ("rows_changed > +10%", "is a change already"),
    ],
)
def test_what_is_no_condition_is_a_usage_error(text: str, said: str) -> None:
    """It names the nearest metric, or how it should be written."""
    with pytest.raises(UsageError) as raised:
        parse_condition(text)
    assert said in str(raised.value)


def test_a_group_that_there_is_not_is_a_usage_error() -> None:
    """Else a gate on it would never close, or never open."""
    with pytest.raises(UsageError, match="there is no group '9K'"):
        judge(parse_condition("ttft_p95@9K > +10%"), FIGURES)

    with pytest.raises(UsageError, match="there is no group '32K\\+'"):  # of a bench, whose groups are others
        judge(parse_condition("ttft_p95@32K+ > +10%"), FIGURES)


def test_a_length_that_no_request_of_the_night_had_was_not_measured() -> None:
    """The same gate stands on every night: without such requests it holds, and is no wrong command."""
    condition = parse_condition("ttft_p95@32K+ > +10%")
    [outcome] = judge(condition, FIGURES, LENGTHS)
    assert [True, None, "32K+"] == [outcome.holds, outcome.measured, outcome.group]
