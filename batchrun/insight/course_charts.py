"""What a report shows of a run over time: documents, tokens a second, and what the engine held."""

from batchrun.insight.pictures import (
    DASHES,
    INK,
    MUTED,
    SERIES,
    Picture,
    drawing,
    legend,
    number_ticks,
    percent,
    time_ticks,
)
from batchrun.insight.report import Report

WIDER = 1.6
"""By this at most the axes reach beyond what has happened."""
MOST_SHARE = 2.0
"""Of the ceiling, that is drawn: a window of a few tokens says little."""


def progress(report: Report, width: float) -> str:
    """A run that ended long before its prediction is drawn large, and the prediction as far as that goes. The record
    is newer than the timeline of a run that goes on or was killed: its count ends the line.
    """
    course, foretold = report.course, report.foretold
    to_run, estimated = foretold.documents_to_run, foretold.estimated_seconds
    begin = report.course.begin_seconds
    moments, done = [begin, *course.seconds], [0, *course.documents]
    if report.course_lags:
        moments.append(begin + foretold.running_seconds)
        done.append(max(done[-1], foretold.documents_computed))
    longest = max(moments[-1], min(begin + (estimated or 0), WIDER * moments[-1]))
    highest = max(1, done[-1], (longest - begin) / estimated * to_run if estimated else 0)
    is_near = to_run < WIDER * highest
    with drawing("documents done over time", width) as picture:
        [axes] = picture.axes
        axes.fill_between(moments, done, color=SERIES[0], alpha=0.18, linewidth=0)
        axes.plot(moments, done, color=SERIES[0], label="done")
        if course.failed[-1]:
            axes.plot(
                moments[: len(course.failed) + 1],
                [0, *course.failed],
                color=SERIES[3],
                label="of these failed",
            )
        if estimated:
            ends = [begin, begin + estimated], [0, to_run]
            axes.plot(*ends, color=MUTED, linestyle=DASHES, linewidth=1.2, label="as predicted")
        if is_near:
            axes.axhline(to_run, color=INK, linewidth=0.8, label=f"{to_run:,} to run")
        else:
            axes.plot([], [], color=INK, linewidth=0.8, label=f"{to_run:,} to run: off the chart")
        axes.set_ylabel("documents")
        number_ticks(axes, whole=True)
        axes.set_ylim(0, 1.05 * (to_run if is_near else highest))
        time_ticks(axes, longest, moments[-1])
        legend(axes)
    return picture.svg


def speed(report: Report, width: float) -> str:
    course, ceiling = report.course, report.ceiling
    rows, height = (3, 4.6) if ceiling else (2, 3.4)
    with drawing("tokens a second over time", width, rows=rows, height=height) as picture:
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
            _shares(report, picture)
        time_ticks(picture.axes[-1], course.seconds[-1], course.seconds[-1])
    return picture.svg


def _shares(report: Report, picture: Picture) -> None:
    """Of the ceiling; what is beyond the chart runs along its edge, and the legend says how far it goes."""
    axes, shares = picture.axes[2], report.course.ceiling_share
    highest, drawn = max(shares), [min(share, MOST_SHARE) for share in shares]
    axes.stairs(drawn, _edges(report), color=SERIES[2], linewidth=1.3, label="both, of the ceiling")
    axes.axhline(1, color=INK, linewidth=1, linestyle=DASHES)
    if highest > MOST_SHARE:
        axes.plot(
            [], [], linestyle="none", label=f"cut off at {percent(MOST_SHARE)}, up to {percent(highest)}"
        )
    axes.set_ylabel("share")
    number_ticks(axes, percent)
    axes.set_ylim(0, 1.1 * max(1, *drawn))
    legend(axes, columns=2)


def engine(report: Report, width: float) -> str:
    """Samples, and of the KV cache the highest of all steps, which a sample may miss."""
    course, limits, most = report.course, report.record.limits, report.kv_cache_usage_max
    with drawing(
        "running sequences, KV cache and preemptions over time", width, rows=3, height=4.6
    ) as picture:
        running, cache, preempted = picture.axes
        running.stairs(
            course.running, _edges(report), color=SERIES[0], linewidth=1.3, label="running, sampled"
        )
        if "max_num_seqs" in limits:
            running.axhline(
                limits["max_num_seqs"], color=INK, linewidth=1, linestyle=DASHES, label="max_num_seqs"
            )
        number_ticks(running, whole=True)
        cache.stairs(
            course.kv_cache_usage,
            _edges(report),
            color=SERIES[1],
            linewidth=1.3,
            label="KV cache, sampled",
        )
        if most:
            cache.axhline(
                most, color=INK, linewidth=1, linestyle=DASHES, label=f"most of all steps: {percent(most)}"
            )
        number_ticks(cache, percent)
        cache.set_ylim(0, 1.05)
        preempted.stairs(course.preemptions, _edges(report), color=SERIES[3], fill=True, label="preemptions")
        number_ticks(preempted, whole=True)
        preempted.set_ylim(0, max(4, 1.1 * max(course.preemptions)))
        for axes in picture.axes:
            legend(axes)
        time_ticks(preempted, course.seconds[-1], course.seconds[-1])
    return picture.svg


def _edges(report: Report) -> list[float]:
    return [report.course.begin_seconds, *report.course.seconds]
