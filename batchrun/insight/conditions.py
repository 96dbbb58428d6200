"""Conditions that end a comparison with an exit code, such as `rows_failed > 0.5%`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf, isfinite
from operator import ge, gt, le, lt

from batchrun.errors import UsageError
from batchrun.insight.figures import METRICS, Figure, Verdict

_FORM = re.compile(r"\s*(\w+)\s*(?:@([^<>]+?))?\s*(>=|<=|>|<)\s*([+-]?)\s*(\d+(?:\.\d+)?)\s*(%?)\s*")
_OPERATIONS: dict[str, Callable[[float, float], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}


@dataclass(frozen=True, kw_only=True)
class Condition:
    """`is_change`: of B against A, else of B alone. `in_percent`: of A's value, or of what a share is of."""

    text: str
    metric: str
    group: str | None
    operation: str
    value: float
    is_change: bool
    in_percent: bool

    def measured(self, figure: Figure) -> float | None:
        """What of a figure is held against the value."""
        counts = METRICS[self.metric].counts and not self.in_percent
        a, b = (figure.num_a, figure.num_b) if counts else figure.of_rows
        if b is None or (self.is_change and a is None):
            return None
        if not self.is_change:
            return 100 * b if self.in_percent else b
        assert a is not None
        if not self.in_percent:
            return b - a
        return 100 * (b - a) / a if a else (0.0 if b == a else inf)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Of a condition in one group, with both values. One that nothing was measured for holds, too (`b` is None): a gate
    does not open for a run that left nothing to judge. `measured` is None there, and where A is 0 and B is more than
    any percentage of it.
    """

    condition: str
    metric: str
    group: str | None
    holds: bool
    measured: float | None
    a: float | None = None
    b: float | None = None
    verdict: Verdict = Verdict.NOT_JUDGED


def parse_condition(text: str) -> Condition:
    """Raises UsageError, which names the nearest metric."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise UsageError(
            f"--fail-if {text!r} is no condition",
            "Write a name, >, >=, < or <=, and a value: --fail-if 'rows_failed > 0.5%' or 'ttft_p95 > +10%'.",
        )
    name, group, operation, sign, number, percent = found.groups()
    metric = METRICS.get(name)
    if metric is None:
        near = get_close_matches(name, METRICS, 1, 0.0)[0]
        hint = f"Did you mean {near!r}? Names: {', '.join(METRICS)}"
        raise UsageError(f"--fail-if {text!r}: there is no metric {name!r}", hint)
    if sign and name == "rows_changed":
        raise UsageError(f"--fail-if {text!r}: rows_changed is a change already", "Write it without a sign.")
    if percent and not sign and not metric.counts and metric.unit != "%":
        raise UsageError(
            f"--fail-if {text!r}: {name} is {f'in {metric.unit}' if metric.unit else 'a number'}, not a share",
            f"For a change against A write a sign: '{name} {operation} +{number}%'.",
        )
    return Condition(
        text=text.strip(),
        metric=name,
        group=group.strip() if group else None,
        operation=operation,
        value=float(f"{sign}{number}"),
        is_change=bool(sign),
        in_percent=bool(percent),
    )


def judge(condition: Condition, figures: Sequence[Figure], possible: Sequence[str] = ()) -> list[Outcome]:
    """One outcome of each group that has the metric; of a group that is `possible`, and that nothing is in,
    nothing was measured. Raises UsageError for a group that there can not be.
    """
    named = [figure for figure in figures if figure.metric == condition.metric]
    if condition.group is not None:
        groups = list(dict.fromkeys(figure.group for figure in figures if figure.group is not None))
        if not any(_is_group(condition.group, group) for group in (*groups, *possible)):
            raise UsageError(
                f"--fail-if {condition.text!r}: there is no group {condition.group!r}",
                f"Groups: {'; '.join(groups or possible) or 'none'}",
            )
        named = [figure for figure in named if figure.group and _is_group(condition.group, figure.group)]
    found = [outcome for figure in named if (outcome := _outcome(condition, figure))]
    if found:
        return found
    return [unmeasured(condition)]


def unmeasured(condition: Condition) -> Outcome:
    """It holds: nothing says otherwise."""
    text, metric, group = condition.text, condition.metric, condition.group
    return Outcome(condition=text, metric=metric, group=group, holds=True, measured=None)


def _is_group(given: str, group: str) -> bool:
    return given.replace("-", "–").casefold() == group.replace("-", "–").casefold()


def _outcome(condition: Condition, figure: Figure) -> Outcome | None:
    measured = condition.measured(figure)
    if measured is None:
        return None
    return Outcome(
        condition=condition.text,
        metric=condition.metric,
        group=figure.group,
        holds=_OPERATIONS[condition.operation](measured, condition.value),
        measured=measured if isfinite(measured) else None,
        a=figure.of_rows[0],
        b=figure.of_rows[1],
        verdict=figure.verdict,
    )
