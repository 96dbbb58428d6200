"""The report as a page: one HTML file that needs nothing beside it, and runs nothing."""

import math
import re
from functools import cache

import jinja2
from markupsafe import Markup, escape

import batchrun
from batchrun.errors import ExitCode
from batchrun.insight import runbook
from batchrun.insight.charts import PHASE_COLORS, STATUS_COLORS, bars, charts
from batchrun.insight.pictures import NARROW, SERIES
from batchrun.insight.report import Report
from batchrun.insight.told import TIMES, times_table

GENERATOR = "batchrun report"
LEAST_PERCENT = 0.01
EXCERPT = 600
"""Characters of a summary."""
PHASES = {
    "planning": "planning",
    "loading": "loading the model",
    "prefill_bound": "prefill-bound: reading prompts",
    "decode_bound": "decode-bound: writing summaries",
    "computing": "computing, not told apart",
    "draining": "draining: places left empty when nothing more was given",
    "idle": "idle: the engine had nothing to compute",
    "publishing": "publishing",
    "other": "opening, closing and the rest",
}
METRICS = (
    "prefill_tokens_per_second",
    "decode_tokens_per_second",
    "ceiling_share",
    "rows",
    "tokens",
    "phase_duration_seconds",
    "seconds_to_completion",
    "running_decode_sequences",
    "kv_cache_usage",
    "num_preemptions",
    "num_engine_deaths",
    "idle_seconds",
    "starved_steps",
    "padding_share",
)
"""Of the runbook, that the page names."""
MOST_SHARDS = 12
"""That a page names."""
_MINUTE, _HOUR = 60, 3600


def render(report: Report) -> str:
    """The whole page. What comes out of documents is escaped, and a page can load or run nothing by itself."""
    return _template().render(
        report=report,
        charts=charts(report) | bars(report),
        narrow=charts(report, NARROW),
        phases=[
            (name, PHASES[name], getattr(report.phases, name), _color(color))
            for name, color in PHASE_COLORS.items()
        ],
        statuses=[
            (status.value, report.rows[status], _color(color)) for status, color in STATUS_COLORS.items()
        ],
        generator=f"{GENERATOR} {batchrun.__version__}",
        excerpt=EXCERPT,
        times=TIMES,
        times_table=times_table,
        has_too_many_failed=report.record.exit_code == ExitCode.TOO_MANY_FAILED,
        blocks=_blocks(report.record.exit_code),
        most_shards=MOST_SHARDS,
    )


def _blocks(exit_code: int | None) -> dict[str, runbook.Block]:
    """Of the runbook what the page names: the exit code, where it is not 0, and metrics."""
    found = runbook.blocks(runbook.path().read_text(encoding="utf-8"))
    names = ([f"exit-{exit_code}"] if exit_code else []) + list(METRICS)
    return {name: runbook.block_of(name, found[name]) for name in names}


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("batchrun.insight", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"n": number, "share": share, "time": time, "money": money, "off_by": off_by}
    environment.filters["code"] = with_code
    return environment.get_template("report.html.jinja")


def _color(color: str) -> str:
    return f"var(--c{SERIES.index(color) + 1})"


def with_code(text: str) -> Markup:
    """What stands in backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped just now


def number(value: float | None) -> str:
    """`1,234,567`, `12.3`, `0.0123`: with three figures where it has a point; a dash for None."""
    return "–" if value is None else _figures(value)


def share(value: float | None) -> str:
    """In percent, of which hundredths are the least."""
    if value is None:
        return "–"
    percent = 100 * value
    if 0 < percent < LEAST_PERCENT:
        return f"< {LEAST_PERCENT} %"
    return f"{percent:,.1f} %" if percent >= 10 else f"{percent:.3g} %"  # noqa: PLR2004 - three figures


def off_by(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.1f} %"


def time(seconds: float | None) -> str:
    """`0.35 s`, `45.0 s`, `12 min 05 s`, `3 h 05 min`."""
    if seconds is None:
        return "–"
    if seconds < _MINUTE:
        return f"{_figures(seconds)} s"
    if seconds < _HOUR:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def money(value: float | None) -> str:
    """In the currency of the price: two places, or as many as show three figures."""
    return "–" if value is None else f"{value:,.2f}" if value >= 1 else _figures(value)


def _figures(value: float) -> str:
    """Three figures, or all before the point; never an exponent."""
    if isinstance(value, int) or abs(value) >= 100:  # noqa: PLR2004 - three figures stand before the point
        return f"{value:,.0f}"
    places = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{max(0, places)}f}"
