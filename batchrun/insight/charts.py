"""What a report shows in pictures: the run over time, its documents, and what they cost."""

from batchrun.insight.course_charts import engine, progress, speed
from batchrun.insight.documents import BucketFacts
from batchrun.insight.pictures import (
    GRID,
    SERIES,
    WIDE,
    drawing,
    few_log_ticks,
    legend,
    number_ticks,
    short,
)
from batchrun.insight.report import Report
from batchrun.records import RowStatus

STATUS_COLORS = {
    RowStatus.OK: SERIES[2],
    RowStatus.FAILED: SERIES[3],
    RowStatus.SKIPPED: SERIES[6],
    RowStatus.PENDING: SERIES[5],
}
PHASE_COLORS = {
    "planning": SERIES[4],
    "loading": SERIES[5],
    "prefill_bound": SERIES[0],
    "decode_bound": SERIES[1],
    "computing": SERIES[0],
    "draining": SERIES[7],
    "idle": SERIES[3],
    "publishing": SERIES[2],
    "other": SERIES[6],
}
FEWEST_POINTS = 8
"""Of a scatter."""


def charts(report: Report, width: float = WIDE) -> dict[str, str]:
    """SVG by name, `width` inches each; what there is nothing to draw of is left out."""
    drawn: dict[str, str] = {}
    if report.course.seconds:
        drawn |= {"progress": progress(report, width), "speed": speed(report, width)}
        drawn["engine"] = engine(report, width)
    if report.documents and report.documents.buckets:
        drawn["inputs"] = lengths(report.documents.buckets, "input", width)
        drawn["outputs"] = lengths(report.documents.buckets, "output", width)
    if (
        len([one for one in report.of_list("sample") if one.compression and one.machine_seconds])
        >= FEWEST_POINTS
    ):
        drawn["quality"] = quality(report, width)
    if len(report.nights) > 1:
        drawn["nights"] = nights(report, width)
    return drawn


def bars(report: Report) -> dict[str, str]:
    """Those that have no words in them, and are as wide as they may be."""
    drawn = {}
    if report.phases.total > 0:
        drawn["phases"] = phases(report)
    if sum(report.rows.values()):
        drawn["rows"] = rows(report)
    return drawn


def phases(report: Report) -> str:
    parts = {name: getattr(report.phases, name) for name in PHASE_COLORS}
    return _bar("time by phase", [(value, PHASE_COLORS[name]) for name, value in parts.items()])


def rows(report: Report) -> str:
    return _bar("rows by status", [(report.rows[status], color) for status, color in STATUS_COLORS.items()])


def _bar(label: str, parts: list[tuple[float, str]]) -> str:
    """A whole, cut into its parts."""
    with drawing(label, height=0.42, is_bar=True) as picture:
        [axes] = picture.axes
        left, whole = 0.0, sum(value for value, _ in parts)
        for value, color in parts:
            axes.barh(0, value / whole, left=left, height=1, color=color)
            left += value / whole
        axes.set_xlim(0, 1)
        axes.set_ylim(-0.5, 0.5)
        axes.set_axis_off()
    return picture.svg


def lengths(buckets: tuple[BucketFacts, ...], of: str, width: float) -> str:
    """Documents by length, those of the buckets on top of each other; of input on a scale of doublings."""
    with drawing(f"{of} lengths by bucket", width, height=2.3) as picture:
        [axes] = picture.axes
        base: list[int] = []
        for bucket, color in zip(buckets, SERIES * len(buckets), strict=False):
            found = bucket.input if of == "input" else bucket.output
            if found is None:
                continue
            base = base or [0] * len(found.counts)
            top = [below + count for below, count in zip(base, found.counts, strict=True)]
            places = range(len(found.counts) + 1) if of == "input" else found.edges
            axes.stairs(top, places, baseline=base, color=color, fill=True, label=bucket.label)
            base = top
            if of == "input":
                marks = [number for number in places if number % 2]
                axes.set_xticks(marks, [_in_1024(found.edges[number]) for number in marks])
        axes.set_xlabel(f"{of} tokens of a document")
        axes.set_ylabel("documents")
        number_ticks(axes, whole=True)
        legend(axes, columns=6)
        if of == "output":
            axes.xaxis.set_major_formatter(short)
            axes.set_xlim(left=0)
    return picture.svg


def _in_1024(tokens: int) -> str:
    return f"{tokens / 1024:g}K" if tokens >= 1024 else str(tokens)  # noqa: PLR2004 - 1K


def quality(report: Report, width: float) -> str:
    """What a document cost, and how much shorter its summary is: for the same documents, a dot each."""
    sample = [one for one in report.of_list("sample") if one.compression and one.machine_seconds]
    kinds = {
        "ended by itself": (SERIES[2], [one for one in sample if not one.document.flags]),
        "capped at max_tokens": (SERIES[1], [one for one in sample if "capped" in one.document.flags]),
        "repeats itself": (SERIES[3], [one for one in sample if "repetition" in one.document.flags]),
    }
    with drawing("compression beside cost", width, height=2.6) as picture:
        [axes] = picture.axes
        for label, (color, those) in kinds.items():
            if those:
                x, y = (
                    [one.machine_seconds or 0.0 for one in those],
                    [one.compression or 0.0 for one in those],
                )
                axes.scatter(x, y, s=9, color=color, alpha=0.6, linewidths=0, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        few_log_ticks(axes)
        axes.set_xlabel("machine seconds of a document")
        axes.set_ylabel("tokens read for each written")
        legend(axes)
    return picture.svg


def nights(report: Report, width: float) -> str:
    """The last runs side by side: documents computed, and machine time."""
    runs = report.nights
    with drawing("the last runs", width, rows=2, height=3.2) as picture:
        documents, hours = picture.axes
        places = range(len(runs))
        documents.bar(places, [run.computed for run in runs], color=SERIES[0], label="documents computed")
        hours.bar(
            places, [run.machine_seconds / 60 for run in runs], color=SERIES[1], label="machine time, min"
        )
        for axes, whole in zip(picture.axes, (True, False), strict=True):
            number_ticks(axes, whole=whole)
            legend(axes)
        every = -(-len(runs) // 6)
        marks = [place for place in places if place % every == (len(runs) - 1) % every]
        hours.set_xticks(marks, [runs[place].started_at[5:16].replace("T", "\n") for place in marks])
        hours.tick_params(axis="x", color=GRID)
        hours.set_xlim(-0.6, max(4, len(runs)) - 0.4)
    return picture.svg
