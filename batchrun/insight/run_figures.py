"""Figures of whole runs beside each other: rows, rates, seconds."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from batchrun.insight.bootstrap import compare, ratio
from batchrun.insight.cost import bill_of
from batchrun.insight.exclusions import Exclusion
from batchrun.insight.facts import RunFacts
from batchrun.insight.figures import Figure, of_difference, of_pairs, of_shares, single
from batchrun.insight.phases import whole_seconds
from batchrun.insight.proportions import Pairs, Share
from batchrun.insight.request_figures import retried
from batchrun.insight.stretches import Floats
from batchrun.run_record import RowCounts, RunState

if TYPE_CHECKING:
    import pyarrow as pa

MOST_SPANS = 100
"""Of a timeline."""
PHASES = ("planning", "loading", "running", "publishing")


Rows = tuple[RowCounts, RowCounts]


def run_figures(
    a: RunFacts,
    b: RunFacts,
    rows: Rows,
    files: Sequence[list[Path]],
    failed: Pairs | None,
    price: float | None = None,
) -> list[Figure]:
    """Of two runs with their `rows` as they stand, the `files` of their request telemetry and, where they have the same texts, which of them `failed`; `price`
    is as `bill_of` has it. Raises DatabaseError.
    """
    records = (a.record, b.record)
    tried = [retried(each, a.scratch) for each in files]
    failures = of_shares(
        "rows_failed", *(Share(number=each.failed, of=each.ok + each.failed) for each in rows)
    )
    return [
        failures if failed is None else of_pairs(failures, failed),
        of_shares("rows_retried", *tried),
        of_shares(
            "rows_pending", *(Share(number=each.pending, of=each.total - each.skipped) for each in rows)
        ),
        *_rates(a, b),
        single("tokens_recomputed", *(record.tokens.recomputed for record in records)),
        single("preemptions", *(record.metrics.num_preemptions for record in records)),
        single("engine_deaths", *(record.metrics.num_engine_deaths for record in records)),
        single("ceiling_share", *(record.metrics.ceiling_share for record in records)),
        *(
            single(f"seconds_{phase}", *(getattr(record.seconds, phase) for record in records))
            for phase in PHASES
        ),
        single("seconds_per_document", *map(_seconds_per_document, (a, b))),
        single("cost_per_1000_documents", *(_cost(facts, price) for facts in (a, b))),
    ]


def run_exclusions(a: RunFacts, b: RunFacts, counts: Rows) -> list[Exclusion]:
    """What of the rows is in no figure of the engine."""
    found = []
    for side, facts, rows in zip("AB", (a, b), counts, strict=True):
        if facts.record.state is not RunState.COMPLETE:
            reason = f"the run is {facts.record.state}: what it has done so far is all that is compared"
            found.append(
                Exclusion(of="rows", side=side, number=rows.pending, total=rows.total, reason=reason)
            )
        for number, reason in (
            (rows.reused, "they were reused, not computed"),
            (rows.duplicate, "they repeat the text of another row"),
            (rows.skipped, "their texts are empty, and they are in no share of rows either"),
        ):
            found.append(
                Exclusion(of="rates and times", side=side, number=number, total=rows.total, reason=reason)
            )
    return [one for one in found if one.number]


def _seconds_per_document(facts: RunFacts) -> float | None:
    return _seconds(facts) / facts.record.rows.computed if facts.record.rows.computed else None


def _seconds(facts: RunFacts) -> float:
    return whole_seconds(facts.record, has_own_clock=facts.has_own_clock)


def _cost(facts: RunFacts, price: float | None) -> float | None:
    a_document = bill_of(facts.record, facts.job, _seconds(facts), price).cost_per_document
    return None if a_document is None else 1000 * a_document


def _rates(a: RunFacts, b: RunFacts) -> list[Figure]:
    """By spans of the timelines in which the engine ran: the run's own figure with the spread that its spans have."""
    spans = (_spans(a), _spans(b))
    shown = {
        "prefill_tokens_per_second": [_reading_speed(facts) for facts in (a, b)],
        "decode_tokens_per_second": [
            facts.record.metrics.decode_tokens_per_second or None for facts in (a, b)
        ],
        "kv_cache_usage": [_rate(each["kv_cache_usage"]) for each in spans],
    }
    figures = []
    for metric, values in shown.items():
        left, right = (_to_scale(each[metric], value) for each, value in zip(spans, values, strict=True))
        numbers = [
            max(len(each), int(value is not None)) for each, value in zip((left, right), values, strict=True)
        ]
        figure = Figure(metric=metric, a=values[0], b=values[1], num_a=numbers[0], num_b=numbers[1])
        found = compare(ratio, left, right)
        figures.append(of_difference(figure, found) if found else figure)
    return figures


def _reading_speed(facts: RunFacts) -> float | None:
    """Prompt tokens that were computed, again ones too: the record's own rate has those of the prefix cache as well."""
    timeline = facts.timeline
    read, seconds = (
        timeline[name][-1].as_py() if timeline.num_rows else 0
        for name in ("prefill_tokens", "running_seconds")
    )
    return read / seconds if read and seconds else None


def _rate(values: Floats) -> float | None:
    return float(values[:, 0].sum() / values[:, 1].sum()) if len(values) and values[:, 1].sum() > 0 else None


def _to_scale(values: Floats, shown: float | None) -> Floats:
    """So that their rate is the one shown: the record counts from the engine's start, the timeline from its first
    sample after it.
    """
    rate = _rate(values)
    return values * [shown / rate, 1.0] if rate and shown else values[:0]


def _spans(facts: RunFacts) -> dict[str, Floats]:
    """By metric `(amount, seconds)` of each span, all about as long: twice as long as a document stayed in the engine,
    so that what two of them share is little; at most MOST_SPANS.
    """
    timeline: pa.Table = facts.timeline
    columns = {
        name: timeline[name].to_numpy().astype(np.float64)
        for name in (
            "running_seconds",
            "documents",
            "prefill_tokens",
            "decode_tokens",
            "kv_cache_usage",
            "running",
        )
    }
    seconds = np.diff(columns["running_seconds"])
    has_run = (columns["running"][1:] > 0) | (np.diff(columns["decode_tokens"]) > 0)
    amounts = {
        "prefill_tokens_per_second": np.diff(columns["prefill_tokens"]),
        "decode_tokens_per_second": np.diff(columns["decode_tokens"]),
        "kv_cache_usage": columns["kv_cache_usage"][1:] * seconds,
    }
    kept = has_run & (seconds > 0)
    stay = float((columns["running"][1:] * seconds)[kept].sum()) / max(
        1.0, columns["documents"].max(initial=0)
    )
    number = int(min(MOST_SPANS, seconds[kept].sum() / (2 * stay))) if stay else 0
    return {name: _merged(amount[kept], seconds[kept], number) for name, amount in amounts.items()}


def _merged(amounts: Floats, seconds: Floats, number: int) -> Floats:
    if not len(amounts):
        return np.empty((0, 2))
    begins = np.cumsum(seconds) - seconds
    span = (begins * max(1, number) / seconds.sum()).astype(np.int64)
    sums = [np.bincount(span, each).astype(np.float64) for each in (amounts, seconds)]
    merged: Floats = np.column_stack(sums)
    return merged[merged[:, 1] > 0]
