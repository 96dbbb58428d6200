"""What a report shows in pictures: the run over time, its documents, and what they cost."""

from batchrun.insight.documents import BucketFacts
from batchrun.insight.pictures import (
    GRID,
    INK,
    MUTED,
    SERIES,
    drawing,
    few_log_ticks,
    legend,
    number_ticks,
    percent,
    short,
    time_ticks,
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
DASHES = (0, (4, 3))
WIDER = 1.6
"""By this at most the axes reach beyond what has happened."""
MOST_SHARE = 2.0
"""Of the ceiling, that is drawn: a window of a few tokens says little."""
FEWEST_POINTS = 8
"""Of a scatter."""


def charts(report: Report) -> dict[str, str]:
    """SVG by name; what there is nothing to draw of is left out."""
    drawn: dict[str, str] = {}
    if report.course.seconds:
        drawn |= {"progress": progress(report), "speed": speed(report), "engine": engine(report)}
    if report.phases.total > 0:
        drawn["phases"] = phases(report)
    if sum(report.rows.values()):
        drawn["rows"] = rows(report)
    if report.documents and report.documents.buckets:
        drawn["inputs"] = lengths(report.documents.buckets, "input")
        drawn["outputs"] = lengths(report.documents.buckets, "output")
    if (
        len([one for one in report.of_list("sample") if one.compression and one.machine_seconds])
        >= FEWEST_POINTS
    ):
        drawn["quality"] = quality(report)
    if len(report.nights) > 1:
        drawn["nights"] = nights(report)
    return drawn


def progress(report: Report) -> str:
    """A run that ended long before its prediction is drawn large, and the prediction as far as that goes."""
    course, to_run, estimated = (
        report.course,
        report.foretold.documents_to_run,
        report.foretold.estimated_seconds,
    )
    begin = course.begin_seconds
    moments, done = [begin, *course.seconds], [0, *course.documents]
    longest = max(moments[-1], min(begin + (estimated or 0), WIDER * moments[-1]))
    highest = max(done[-1], (longest - begin) / estimated * to_run if estimated else 0)
    with drawing("documents done over time") as picture:
        [axes] = picture.axes
        axes.fill_between(moments, done, color=SERIES[0], alpha=0.18, linewidth=0)
        axes.plot(moments, done, color=SERIES[0], label="done")
        if course.failed[-1]:
            axes.plot(moments, [0, *course.failed], color=SERIES[3], label="of these failed")
        if estimated:
            ends = [begin, begin + estimated], [0, to_run]
            axes.plot(*ends, color=MUTED, linestyle=DASHES, linewidth=1.2, label="as predicted")
        if to_run < WIDER * highest:
            axes.axhline(to_run, color=INK, linewidth=0.8, label="to run")
        axes.set_ylabel("documents")
        number_ticks(axes)
        axes.set_ylim(0, 1.05 * (to_run if to_run < WIDER * highest else highest))
        time_ticks(axes, longest, moments[-1])
        legend(axes)
    return picture.svg


def speed(report: Report) -> str:
    course, ceiling = report.course, report.ceiling
    with drawing(
        "tokens a second over time", rows=3 if ceiling else 2, height=4.6 if ceiling else 3.4
    ) as picture:
        pairs = (
            (
                "prefill",
                course.prefill_tokens_per_second,
                ceiling.prefill_tokens_per_second if ceiling else None,
                SERIES[0],
            ),
            (
                "decode",
                course.decode_tokens_per_second,
                ceiling.decode_tokens_per_second if ceiling else None,
                SERIES[1],
            ),
        )
        for axes, (name, rates, most, color) in zip(picture.axes, pairs, strict=False):
            axes.stairs(rates, _edges(report), color=color, fill=True, alpha=0.25)
            axes.stairs(rates, _edges(report), color=color, linewidth=1.3, label=f"{name}")
            if most:
                axes.axhline(
                    most, color=INK, linewidth=1, linestyle=DASHES, label=f"{name} alone, as calibrated"
                )
            axes.set_ylabel("tokens/s")
            number_ticks(axes)
            legend(axes)
        if ceiling:
            axes = picture.axes[2]
            axes.stairs(
                course.ceiling_share,
                _edges(report),
                color=SERIES[2],
                linewidth=1.3,
                label="both, of the ceiling",
            )
            axes.axhline(1, color=INK, linewidth=1, linestyle=DASHES)
            axes.set_ylabel("share")
            number_ticks(axes, percent)
            axes.set_ylim(0, min(MOST_SHARE, 1.1 * max(1, *course.ceiling_share)))
            legend(axes)
        time_ticks(picture.axes[-1], course.seconds[-1], course.seconds[-1])
    return picture.svg


def engine(report: Report) -> str:
    course, limits = report.course, report.record.limits
    with drawing("running sequences, KV cache and preemptions over time", rows=3, height=4.6) as picture:
        running, cache, preempted = picture.axes
        running.stairs(
            course.running, _edges(report), color=SERIES[0], linewidth=1.3, label="running sequences"
        )
        if "max_num_seqs" in limits:
            running.axhline(
                limits["max_num_seqs"], color=INK, linewidth=1, linestyle=DASHES, label="max_num_seqs"
            )
        number_ticks(running)
        cache.stairs(
            course.kv_cache_usage,
            _edges(report),
            color=SERIES[1],
            linewidth=1.3,
            label="KV cache in use, at most",
        )
        number_ticks(cache, percent)
        cache.set_ylim(0, 1.05)
        preempted.stairs(course.preemptions, _edges(report), color=SERIES[3], fill=True, label="preemptions")
        number_ticks(preempted)
        preempted.set_ylim(0, max(4, 1.1 * max(course.preemptions)))
        for axes in picture.axes:
            legend(axes)
        time_ticks(preempted, course.seconds[-1], course.seconds[-1])
    return picture.svg


def _edges(report: Report) -> list[float]:
    return [report.course.begin_seconds, *report.course.seconds]


def phases(report: Report) -> str:
    parts = {name: getattr(report.phases, name) for name in PHASE_COLORS}
    return _bar("time by phase", [(value, PHASE_COLORS[name]) for name, value in parts.items()])


def rows(report: Report) -> str:
    return _bar("rows by status", [(report.rows[status], color) for status, color in STATUS_COLORS.items()])


def _bar(label: str, parts: list[tuple[float, str]]) -> str:
    """A whole, cut into its parts."""
    with drawing(label, height=0.42, kind="bar") as picture:
        [axes] = picture.axes
        left, whole = 0.0, sum(value for value, _ in parts)
        for value, color in parts:
            axes.barh(0, value / whole, left=left, height=1, color=color)
            left += value / whole
        axes.set_xlim(0, 1)
        axes.set_ylim(-0.5, 0.5)
        axes.set_axis_off()
    return picture.svg


def lengths(buckets: tuple[BucketFacts, ...], of: str) -> str:
    """Documents by length, those of the buckets on top of each other; of input on a scale of doublings."""
    with drawing(f"{of} lengths by bucket", height=2.3) as picture:
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
        axes.set_xlabel(
            f"{of} tokens of a document" + (", each mark twice the one before" if of == "input" else "")
        )
        axes.set_ylabel("documents")
        number_ticks(axes)
        legend(axes, columns=6)
        if of == "output":
            axes.xaxis.set_major_formatter(short)
            axes.set_xlim(left=0)
    return picture.svg


def _in_1024(tokens: int) -> str:
    return f"{tokens / 1024:g}K" if tokens >= 1024 else str(tokens)  # noqa: PLR2004 - 1K


def quality(report: Report) -> str:
    """What a document cost, and how much shorter its summary is: for the same documents, a dot each."""
    sample = [one for one in report.of_list("sample") if one.compression and one.machine_seconds]
    kinds = {
        "ended by itself": (SERIES[2], [one for one in sample if not one.document.flags]),
        "capped at max_tokens": (SERIES[1], [one for one in sample if "capped" in one.document.flags]),
        "repeats itself": (SERIES[3], [one for one in sample if "repetition" in one.document.flags]),
    }
    with drawing("compression beside cost", height=2.6) as picture:
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


def nights(report: Report) -> str:
    """The last runs side by side: documents computed, and machine time."""
    runs = report.nights
    with drawing("the last runs", rows=2, height=3.2) as picture:
        documents, hours = picture.axes
        places = range(len(runs))
        documents.bar(places, [run.computed for run in runs], color=SERIES[0], label="documents computed")
        hours.bar(
            places, [run.machine_seconds / 60 for run in runs], color=SERIES[1], label="machine time, min"
        )
        for axes in picture.axes:
            number_ticks(axes)
            legend(axes)
        every = -(-len(runs) // 6)
        marks = [place for place in places if place % every == (len(runs) - 1) % every]
        hours.set_xticks(marks, [runs[place].started_at[5:16].replace("T", "\n") for place in marks])
        hours.tick_params(axis="x", color=GRID)
        hours.set_xlim(-0.6, max(4, len(runs)) - 0.4)
    return picture.svg
