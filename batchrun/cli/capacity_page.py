"""What `batchrun capacity` shows a person."""

from typing import TYPE_CHECKING

from batchrun.clock import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchrun.insight.capacity import Capacity
    from batchrun.insight.limits import Change


def render(found: "Capacity") -> str:
    """The plan as a person reads it."""
    known = "" if found.outputs_known else ", were each output as long as may be"
    lines = [
        f"job {found.job_id}, {found.of}",
        f"{found.documents:,} documents: {found.input_tokens:,} tokens to read, {found.output_tokens:,} to write{known}",
        found.basis,
        *_hours(found),
        *_windows(found),
        *_attempts(found),
        *_kv(found),
        *_replicas(found),
        *_limits(found),
        *_excess(found),
        *SIGNALS.format(", ".join(found.scaling_signals)).splitlines(),
    ]
    return "\n".join(lines)


SIGNALS = """scaling signals of the batch pool, the batch metrics alone: {}
  No TTFT and no ITL: nobody waits for a first token, and a batch tuned for throughput has long queues on purpose.
  Scaled on them the pool grows while the deadline is safe; an online pool scaled on batch tokens lets people wait."""


SPEC_KEYS = """  inputs end by engine.max_model_len with long_documents.policy = "truncate", outputs by output.max_tokens: a new job, whose
  summaries are all computed anew; what is left out of one night stays pending, by --prefer shortest"""


def _hours(found: "Capacity") -> list[str]:
    lines = []
    if found.measured is not None:
        lines.append(f"one replica took {duration(found.measured.took_seconds)}")
    by_speed = None if found.by_speed == found.by_profile else found.by_speed
    for took, by in ((found.by_profile, "by the profile"), (by_speed, "by the speed of the run")):
        if took is None:
            continue
        told = f"one replica, {by}: {duration(took.seconds)}"
        if took.reading_seconds is not None and took.writing_seconds is not None:
            told += (
                f": {duration(took.reading_seconds)} of reading, {duration(took.writing_seconds)} of writing"
            )
        lines.append(told)
    beside = found.overhead
    return [
        *lines,
        f"beside it: planning {duration(beside.planning)}, loading {duration(beside.loading)}, "
        f"publishing {duration(beside.publishing)}",
    ]


def _windows(found: "Capacity") -> list[str]:
    read, written = found.peak_prefill, found.peak_decode
    if read is None or written is None:
        return []
    width = duration(found.windows[0].seconds)
    mean = [total / len(found.windows) for total in _sums(found)]
    rows = [
        ("tokens in windows of " + width, "mean", "peak", "peak begins"),
        ("  prefill", f"{mean[0]:,.0f}", f"{read.prefill_tokens:,}", f"after {duration(read.start_seconds)}"),
        (
            "  decode",
            f"{mean[1]:,.0f}",
            f"{written.decode_tokens:,}",
            f"after {duration(written.start_seconds)}",
        ),
    ]
    lines = _columns(rows)
    if found.measured is not None and found.measured.sample_seconds > found.windows[0].seconds / 2:
        lines.append(
            f"  counted every {duration(found.measured.sample_seconds)}, and taken to come evenly between"
        )
    return lines


def _sums(found: "Capacity") -> tuple[int, int]:
    return sum(one.prefill_tokens for one in found.windows), sum(one.decode_tokens for one in found.windows)


KINDS = {
    "first": "first attempts",
    "slice": "later slices",
    "retry": "retries of what failed",
    "aborted": "stopped on the way",
}


def _attempts(found: "Capacity") -> list[str]:
    if found.measured is None:
        return []
    rows = [("requests, by their telemetry", "number", "tokens read", "from the cache", "written")]
    rows += [
        (
            f"  {KINDS[one.kind]}",
            f"{one.requests:,}",
            f"{one.read_tokens:,}",
            f"{one.cached_tokens:,}",
            f"{one.output_tokens:,}",
        )
        for one in found.measured.attempts
    ]
    again, times = found.measured.recomputed_tokens, found.measured.preemptions
    return [*_columns(rows), f"  computed again in the engine: {again:,} tokens, {times:,} preemptions"]


def _kv(found: "Capacity") -> list[str]:
    kv = found.kv
    if kv is None:
        return []
    of = f" of {kv.kv_tokens:,} ({kv.share:.0%})" if kv.kv_tokens and kv.share is not None else ""
    if kv.at_seconds is not None:
        when = f", with {kv.sequences:,} sequences, after {duration(kv.at_seconds)}"
        return [f"KV cache at its peak: {kv.tokens:,} tokens{of}{when}"]
    most = f"; the longest together want {kv.most_wanted:,}" if kv.most_wanted is not None else ""
    unknown = "" if kv.kv_tokens else "; a first run tells how many there are"
    return [f"KV cache, foretold: {kv.tokens:,} tokens{of} with {kv.sequences:,} sequences{most}{unknown}"]


def _replicas(found: "Capacity") -> list[str]:
    rows = [
        ("replicas, a shard each", "last one ends", "one lost: new machine", "nobody new", "its documents")
    ]
    rows += [
        (
            f"  {one.number:,}",
            duration(one.seconds),
            duration(one.seconds_replaced),
            "-" if one.seconds_reduced is None else duration(one.seconds_reduced),
            f"{one.lost_documents:,}",
        )
        for one in found.replicas
    ]
    lines = _columns(rows) if found.replicas else []
    wanted, doubled = found.needed, found.needed_for_twice
    if wanted is None or doubled is None:
        return lines
    ends = f"for the window of {duration(wanted.seconds)}, which ends {found.window_ends}"
    return [
        *lines,
        f"{ends}: {_number(wanted.replicas)}; {_number(wanted.replicas_if_one_is_lost)} if one is lost half-way and nobody "
        f"is new; {_number(doubled.replicas)} for twice the load",
    ]


def _number(replicas: int | None) -> str:
    if replicas is None:
        return "no number of replicas is enough"
    return f"{replicas:,} replica{'s' if replicas > 1 else ''}"


def _limits(found: "Capacity") -> list[str]:
    rows: list[tuple[str, ...]] = [("if", "cut", "documents", "read", "written", "one replica")]
    changes = (*found.input_limits, *found.output_limits, found.twice)
    rows += [
        (
            f"  {_change(one)}",
            f"{one.affected_share:.1%}" if one.limit else "",
            f"{one.documents:,}",
            f"{one.input_tokens:,}",
            f"{one.output_tokens:,}",
            "not known" if one.seconds is None else duration(one.seconds),
        )
        for one in changes
    ]
    return [*_columns(rows), *SPEC_KEYS.splitlines()]


def _change(one: "Change") -> str:
    if one.limit is None:
        return "twice the load"
    return {
        "truncate": f"inputs end at {one.limit:,}",
        "leave out": f"those of {one.limit:,} or more are left out",
        "cap outputs": f"outputs end at {one.limit:,}",
    }[one.what]


def _excess(found: "Capacity") -> list[str]:
    too_much = found.excess
    if found.needed is None:
        return []
    at_work = _number(found.replicas_at_work)
    if too_much is None:
        return [f"all fits the window with {at_work}"]
    lines = [
        f"too much for the window with {at_work}: {duration(too_much.seconds)} of running are there, "
        f"{duration(too_much.missing_seconds)} more are needed"
    ]
    for one in too_much.fitting:
        delayed = ", ".join(
            f"{part.documents:,} {f'of {part.label} ' if part.label else ''}({part.tokens:,} tokens)"
            for part in one.delayed
        )
        lines.append(
            f"  --prefer {one.prefer:<8} {one.documents:,} documents fit ({one.share:.0%}), {one.tokens:,} tokens; "
            f"delay {delayed}"
        )
    return [*lines, *_ways_to_fit(found)]


def _ways_to_fit(found: "Capacity") -> list[str]:
    too_much = found.excess
    assert too_much is not None, "there is too much"
    lines = []
    for limit, does in ((too_much.leave_out, "leave out those of"), (too_much.truncate, "end inputs at")):
        if limit is None:
            lines.append(f"  it does not fit, whatever length you {does}")
        else:
            more = " tokens or more" if limit is too_much.leave_out else " tokens"
            lines.append(
                f"  it fits if you {does} {limit.limit:,}{more}: {limit.documents:,} documents, "
                f"{limit.tokens:,} tokens less to read, {duration(limit.seconds)}"
            )
    if too_much.output is None:
        told = "it does not fit with shorter outputs alone"
        lines.append(f"  {told if found.by_profile else 'what shorter outputs save is told with a profile'}")
    else:
        out = too_much.output
        lines.append(
            f"  it fits if outputs end at {out.limit:,} tokens, which cuts {out.share:.0%} of them: {duration(out.seconds)}"
        )
    return lines


def _columns(rows: "Sequence[tuple[str, ...]]") -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]
