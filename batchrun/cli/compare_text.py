"""A comparison as a person reads it."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from textwrap import shorten
from typing import TYPE_CHECKING

from batchrun.cli.layout import columns, table, wrapped
from batchrun.insight.figures import METRICS, Figure, Verdict
from batchrun.insight.proportions import Share

if TYPE_CHECKING:
    from batchrun.insight.bootstrap import Interval
    from batchrun.insight.changed_summaries import ChangedSummaries
    from batchrun.insight.comparison import Comparison
    from batchrun.insight.conditions import Outcome
    from batchrun.insight.sides import Side

_WIDTHS = (27, 13, 13, 11, 18, 12)
_HEAD = ("", "A", "B", "samples", "change [95 %]", "verdict")
_COUNTS = ("total", "ok", "failed", "skipped", "pending", "reused", "duplicate", "computed")
_FINE_BELOW = 10.0
"""Percent that are told with a tenth."""
_DOUBLED = 200.0
"""Percent from which a change is told as a multiple."""
_LONG_MS = 10_000
"""Milliseconds from which a time is told in seconds."""
MOST_GROUPS = 5
"""From more groups of requests only what differs is shown: else it would be no screen."""
MOST_EXCLUSIONS = 12
_QUIET = (Verdict.WITHIN_NOISE, Verdict.NOT_JUDGED)
_MOST_WORDS = 400
"""Characters of a summary's difference that are shown."""


def render(found: "Comparison") -> str:
    """All of it: what is compared, the figures, the summaries, what was left out, the conditions."""
    lines = [*_side("A", found.a), *_side("B", found.b)]
    lines += _wrapped("settings that differ: " + ("; ".join(found.settings) or "none"))
    lines += ["", *_rows(found.a, found.b)]
    lines += _figures(found.figures)
    if found.summaries is not None:
        lines += ["", *_summaries(found.summaries)]
    if found.exclusions:
        lines += ["", "left out"]
        lines += [line for each in found.exclusions[:MOST_EXCLUSIONS] for line in _wrapped(each.text, "  ")]
        if len(found.exclusions) > MOST_EXCLUSIONS:
            lines.append(f"  … {len(found.exclusions) - MOST_EXCLUSIONS:,} more (--json)")
    if found.outcomes:
        lines += ["", "conditions"]
        lines += [line for each in found.outcomes for line in _wrapped(condition_text(each), "  ")]
        if found.b.missing:
            lines += _wrapped(f"B is not complete: {found.b.missing}", "  ")
    return "\n".join(lines)


def condition_text(outcome: "Outcome") -> str:
    """`rows_failed > 0.5%: holds: A 0.10%, B 1.20%, measured 1.2 (worse)`."""
    said = f"{outcome.condition}: {'holds' if outcome.holds else 'does not hold'}"
    if outcome.b is None:
        return f"{said}: nothing was measured that could say otherwise"
    unit = METRICS[outcome.metric].unit
    values = ", ".join(
        f"{side} {_value(outcome.metric, value)}{f' {unit}' if unit not in ('', '%') else ''}"
        for side, value in (("A", outcome.a), ("B", outcome.b))
    )
    where = f" of {outcome.group}" if outcome.group else ""
    percent = "%" if outcome.condition.endswith("%") else ""
    measured = "from 0" if outcome.measured is None else f"{number(outcome.measured)}{percent}"
    return f"{said}{where}: {values}, measured {measured} ({outcome.verdict})"


def number(value: float) -> str:
    """With about three figures: `12,345`, `123`, `12.3`, `1.23`."""
    if value == round(value):
        return f"{value:,.0f}"
    digits = next((digits for limit, digits in ((100, 0), (10, 1), (1, 2)) if abs(value) >= limit), 3)
    return f"{value:,.{digits}f}"


def _side(name: str, side: "Side") -> list[str]:
    parts = [
        side.name,
        side.job_id and f"job {side.job_id}",
        side.release and f"release {side.release}",
        side.engine,
        side.state,
    ]
    return _wrapped(f"{name}  " + ", ".join(part for part in parts if part), "", "   ")


def _rows(a: "Side", b: "Side") -> Iterator[str]:
    if a.rows is None or b.rows is None:
        return
    counted = (("A", a.rows), ("B", b.rows))
    yield from table(
        [
            ("rows", *(name.rjust(9) for name in _COUNTS)),
            *((f"   {name}", *(f"{getattr(rows, count):,}" for count in _COUNTS)) for name, rows in counted),
        ]
    )


def _figures(figures: Iterable[Figure]) -> Iterator[str]:
    shown = [figure for figure in figures if figure.metric != "rows_changed" and not _says_nothing(figure)]
    if len({figure.group for figure in shown}) > MOST_GROUPS:
        differing = [figure for figure in shown if figure.verdict not in _QUIET]
        yield ""
        quiet = len(shown) - len(differing)
        yield from wrapped(
            f"{quiet:,} of {len(shown):,} figures are within noise or not judged: --json tells them"
        )
        shown = differing
    yield ""
    if columns() >= sum(_WIDTHS) + len(_WIDTHS):
        yield _line(_HEAD)
    for group, members in groupby(shown, key=lambda figure: figure.group):
        yield "whole run" if group is None else f"requests of {group}"
        for figure in members:
            yield from _lines(_cells(figure))


def _says_nothing(figure: Figure) -> bool:
    return not figure.a and not figure.b and figure.metric != "rows_failed"


def _cells(figure: Figure) -> tuple[str, ...]:
    unit, scale = "", 1.0
    if _is_share(figure.metric):
        scale = 100.0
    elif figure.unit == "ms":
        unit, scale = (" s", 1e-3) if max(figure.a or 0, figure.b or 0) >= _LONG_MS else (" ms", 1.0)
    return (
        f"  {figure.metric}{unit}",
        _spread(figure, figure.a, figure.spread_a, scale),
        _spread(figure, figure.b, figure.spread_b, scale),
        _samples(figure),
        _change(figure),
        _verdict(figure),
    )


def _verdict(figure: Figure) -> str:
    if figure.verdict is not Verdict.NOT_JUDGED:
        return figure.verdict
    if figure.a is None or figure.b is None:
        return "one side"
    return "one figure" if max(figure.num_a, figure.num_b) == 1 else "too few"


def _lines(cells: tuple[str, ...]) -> list[str]:
    """One, or where the terminal is too narrow for that what there is in words."""
    if columns() >= sum(_WIDTHS) + len(_WIDTHS):
        return [_line(cells)]
    names = (*_HEAD[1:-1], "")
    values = (f"{name} {cell}".strip() for name, cell in zip(names, cells[1:], strict=True) if cell != "-")
    return wrapped(f"{cells[0].strip()}: {', '.join(values)}", "  ", "    ")


def _line(cells: tuple[str, ...]) -> str:
    first, *others = (
        cell.ljust(width) if place in (0, 5) else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, _WIDTHS, strict=True))
    )
    return " ".join([first, *others]).rstrip()


def _is_share(metric: str) -> bool:
    return METRICS[metric].counts or METRICS[metric].unit == "%"


def _value(metric: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{number(100 * value)}%" if _is_share(metric) else number(value)


def _spread(figure: Figure, value: float | None, spread: "Interval | None", scale: float) -> str:
    if value is None:
        return "-"
    said = number(scale * value) + ("%" if _is_share(figure.metric) else "")
    return said if spread is None else f"{said} ±{number(scale * spread.half)}"


def _samples(figure: Figure) -> str:
    if figure.num_texts is not None:
        return f"{figure.num_texts:,} {'text' if figure.num_texts == 1 else 'texts'}"
    if figure.of_a is not None and figure.of_b is not None:
        return f"{figure.of_a:,}+{figure.of_b:,}"
    if figure.is_paired:
        return f"{figure.num_a:,} {'pair' if figure.num_a == 1 else 'pairs'}"
    return f"{figure.num_a:,}+{figure.num_b:,}"


def _change(figure: Figure) -> str:
    if figure.of_a is not None and figure.a is not None and figure.b is not None:
        return _interval(100 * (figure.b - figure.a), " pp", figure.change, 100)
    percent = figure.percent_change
    if percent is None:
        return "-"
    if percent < _DOUBLED:
        return _interval(percent, "%", figure.percent, 1)
    said = f"{number(1 + percent / 100)}×"
    if figure.percent is None:
        return said
    return f"{said} [{number(1 + figure.percent.low / 100)}, {number(1 + figure.percent.high / 100)}]"


def _interval(value: float, unit: str, interval: "Interval | None", scale: int) -> str:
    said = f"{_signed(value)}{unit}"
    if interval is None:
        return said
    return f"{said} [{_signed(scale * interval.low)}, {_signed(scale * interval.high)}]"


def _signed(value: float) -> str:
    rounded = f"{value:+.1f}" if abs(value) < _FINE_BELOW else f"{value:+.0f}"
    return "0" if float(rounded) == 0 else rounded


def _summaries(found: "ChangedSummaries") -> Iterator[str]:
    counts, unit = found.counts, "texts" if found.matched_by == "text" else "rows"
    parts = {
        "the same": counts.same,
        "changed": counts.changed,
        "became failed": counts.became_failed,
        "mended": counts.mended,
        "failed in both": counts.failed_in_both,
        "pending": counts.pending,
        "only in A": counts.only_in_a,
        "only in B": counts.only_in_b,
    }
    said = ", ".join(f"{count:,} {name}" for name, count in parts.items() if count)
    yield from _wrapped(f"summaries of {counts.in_both:,} {unit} in both: {said or 'none'}")
    share = Share(number=counts.changed, of=counts.decided)
    if share.value and share.interval:
        low, high = (number(100 * end) for end in (share.interval.low, share.interval.high))
        changed = f"changed: {number(100 * share.value)}% [{low}, {high}] of those with a verdict in both"
        yield from wrapped(changed, "  ")
    for one in found.shown:
        words = shorten(one.words, _MOST_WORDS, placeholder=" …")
        yield from _wrapped(f"{one.doc_id} ({one.place}): {words}", "  ", "    ")
    if len(found.shown) < counts.changed:
        yield f"  … {counts.changed - len(found.shown):,} more (--show)"


def _wrapped(text: str, first: str = "", following: str | None = None) -> list[str]:
    """Without what a terminal would obey: summaries are what a model made of what somebody wrote."""
    later = first + "  " if following is None else following
    text = "".join(letter if letter.isprintable() else "�" for letter in text)
    return wrapped(text, first, later)
