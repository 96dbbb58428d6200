"""Two runs, or two benches, on one screen: what differs by more than noise, and which summaries changed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from batchrun.insight.changed_summaries import ChangedSummaries, changed_summaries
from batchrun.insight.conditions import Condition, Outcome, judge
from batchrun.insight.exclusions import Exclusion
from batchrun.insight.facts import RunFacts
from batchrun.insight.figures import Figure, judged
from batchrun.insight.request_figures import request_figures
from batchrun.insight.run_figures import run_exclusions, run_figures
from batchrun.insight.sides import Side, changed_settings, side_of_run


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """`kind` is `run` or `bench`. `summaries` are None of benches, and where a plan is gone."""

    kind: str
    a: Side
    b: Side
    settings: tuple[str, ...]
    figures: tuple[Figure, ...]
    exclusions: tuple[Exclusion, ...]
    summaries: ChangedSummaries | None = None
    outcomes: tuple[Outcome, ...] = ()

    @property
    def holding(self) -> list[Outcome]:
        """Conditions that hold, where they do."""
        return [outcome for outcome in self.outcomes if outcome.holds]


def compare_runs(a: RunFacts, b: RunFacts, *, num_shown: int = 5, price: float | None = None) -> Comparison:
    """Raises DamageError, DatabaseError, OSError where a file can not be read."""
    requests, left_out = request_figures(a.requests, b.requests, a.scratch)
    summaries, of_summaries = changed_summaries(a, b, num_shown)
    figures = run_figures(a, b, price) + requests
    if summaries is not None:
        figures.append(_changed(summaries))
    sides = side_of_run(a), side_of_run(b)
    return Comparison(
        kind="run",
        a=sides[0],
        b=sides[1],
        settings=changed_settings(*sides),
        figures=judged(figure for figure in figures if (figure.a, figure.b) != (None, None)),
        exclusions=(*run_exclusions(a, b), *left_out, *of_summaries),
        summaries=summaries,
    )


def _changed(summaries: ChangedSummaries) -> Figure:
    counts = summaries.counts
    share = counts.changed / counts.in_both if counts.in_both else None
    return Figure(metric="rows_changed", a=None, b=share, num_a=0, num_b=counts.changed, of_b=counts.in_both)


def with_outcomes(found: Comparison, conditions: Sequence[Condition]) -> Comparison:
    """Raises UsageError for a condition of a group that there is not."""
    outcomes = [outcome for condition in conditions for outcome in judge(condition, found.figures)]
    return replace(found, outcomes=tuple(outcomes))
