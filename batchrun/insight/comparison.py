"""Two runs, or two benches, on one screen: what differs by more than noise, and which summaries changed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from batchrun.insight.changed_summaries import ChangedSummaries, SummaryCounts, changed_summaries
from batchrun.insight.conditions import Condition, Outcome, judge, unmeasured
from batchrun.insight.exclusions import Exclusion
from batchrun.insight.facts import RunFacts, damaged_files
from batchrun.insight.figures import Figure, judged
from batchrun.insight.percentiles import LENGTHS
from batchrun.insight.proportions import Share
from batchrun.insight.request_figures import request_figures
from batchrun.insight.run_figures import run_exclusions, run_figures
from batchrun.insight.sides import Side, changed_settings, side_of_run
from batchrun.insight.standing_rows import standing_rows


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
    (files_a, damaged_a), (files_b, damaged_b) = _request_files("A", a), _request_files("B", b)
    requests, left_out = request_figures(files_a, files_b, a.scratch)
    summaries, of_summaries = changed_summaries(a, b, num_shown)
    planned = summaries.rows if summaries else (None, None)
    rows = standing_rows(a, planned[0]), standing_rows(b, planned[1])
    figures = (
        run_figures(a, b, rows, (files_a, files_b), summaries.pairs if summaries else None, price) + requests
    )
    if summaries is not None:
        figures.append(_changed(summaries.counts))
    sides = side_of_run(a, rows[0]), side_of_run(b, rows[1])
    return Comparison(
        kind="run",
        a=sides[0],
        b=sides[1],
        settings=changed_settings(*sides),
        figures=judged(figure for figure in figures if (figure.a, figure.b) != (None, None)),
        exclusions=(*damaged_a, *damaged_b, *run_exclusions(a, b, rows), *left_out, *of_summaries),
        summaries=summaries,
    )


def _request_files(side: str, facts: RunFacts) -> tuple[list[Path], list[Exclusion]]:
    """Those of a run's request telemetry that can be opened, and what is left out with the others."""
    files = facts.requests
    damaged = damaged_files(files)
    told = [Exclusion(of="requests", side=side, reason=f"their file {path} is damaged") for path in damaged]
    return [path for path in files if path not in damaged], told


def _changed(counts: SummaryCounts) -> Figure:
    share = Share(number=counts.changed, of=counts.decided)
    return Figure(
        metric="rows_changed",
        a=None,
        b=share.value,
        num_a=0,
        num_b=share.number,
        of_b=share.of,
        spread_b=share.interval,
    )


def with_outcomes(found: Comparison, conditions: Sequence[Condition]) -> Comparison:
    """Where B left no row with a verdict every condition holds: nothing of it was measured. Raises UsageError for a
    condition of a group that there is not.
    """
    possible = LENGTHS if found.kind == "run" else ()
    outcomes = [
        outcome
        for condition in conditions
        for outcome in (
            [unmeasured(condition)] if found.b.left_nothing else judge(condition, found.figures, possible)
        )
    ]
    return replace(found, outcomes=tuple(outcomes))
