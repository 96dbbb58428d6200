"""What `batchrun capacity` shows a person, as wide as the terminal."""

from typing import TYPE_CHECKING

from batchrun.cli.capacity_advice import excess_lines, limit_lines, replicas_text
from batchrun.cli.layout import table, wrapped
from batchrun.clock import duration
from batchrun.insight.windows import WINDOW_SECONDS

if TYPE_CHECKING:
    from batchrun.insight.capacity import Capacity


def render(found: "Capacity") -> str:
    """The plan as a person reads it."""
    lines = wrapped(f"job {found.job_id}, {found.of}")
    if not found.documents:
        return "\n".join([*lines, "nothing is left to run: 0 documents"])
    lines += [
        *_size(found),
        *wrapped(found.basis),
        *_hours(found),
        *_windows(found),
        *_attempts(found),
        *_kv(found),
        *_replicas(found),
        *limit_lines(found),
        *excess_lines(found),
        *wrapped(SIGNALS.format(", ".join(found.scaling_signals))),
        *wrapped(WHY_THESE, "  "),
    ]
    return "\n".join(lines)


SIGNALS = "scaling signals of the batch pool, the batch metrics alone: {}"
WHY_THESE = """No TTFT and no ITL: nobody waits for a first token, and a batch tuned for throughput has long queues on purpose.
Scaled on them the pool grows while the deadline is safe; an online pool scaled on batch tokens lets people wait."""


def _size(found: "Capacity") -> list[str]:
    known = "" if found.outputs_known else ", were each output as long as may be"
    documents = f"{found.documents:,} document{'s' if found.documents > 1 else ''}"
    return wrapped(
        f"{documents}: {found.input_tokens:,} tokens to read, {found.output_tokens:,} to write{known}"
    )


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
        lines += wrapped(told)
    beside = found.overhead
    told = (
        f"beside it: planning {duration(beside.planning)}, loading {duration(beside.loading)}, "
        f"publishing {duration(beside.publishing)}"
    )
    if found.stay_seconds:
        told += f", and {duration(found.stay_seconds)} until the last output has ended"
    return [*lines, *wrapped(told)]


def _windows(found: "Capacity") -> list[str]:
    read, written = found.peak_prefill, found.peak_decode
    if read is None or written is None:
        return []
    if len(found.windows) == 1:
        took = duration(read.seconds)
        shorter = ", which is shorter than 5 min" if read.seconds < WINDOW_SECONDS else ""
        return wrapped(
            f"tokens in one window of {took}{shorter}: prefill {read.prefill_tokens:,}, decode "
            f"{written.decode_tokens:,}"
        )
    width = found.windows[0].seconds
    per_second = [total / sum(one.seconds for one in found.windows) for total in _sums(found)]
    rows = [
        (f"tokens in windows of {duration(width)}", "mean", "peak", "peak begins"),
        (
            "  prefill",
            f"{per_second[0] * width:,.0f}",
            f"{read.prefill_tokens:,}",
            _after(read.start_seconds),
        ),
        (
            "  decode",
            f"{per_second[1] * width:,.0f}",
            f"{written.decode_tokens:,}",
            _after(written.start_seconds),
        ),
    ]
    lines = [*table(rows), f"  all {len(found.windows):,} windows: --json"]
    if found.measured is not None and found.measured.sample_seconds > width / 2:
        told = f"counted every {duration(found.measured.sample_seconds)}, and taken to come evenly between"
        lines += wrapped(told, "  ")
    return lines


def _after(seconds: float) -> str:
    return f"after {duration(seconds)}"


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
    told = f"computed again in the engine: {again:,} tokens, {times:,} preemption{'' if times == 1 else 's'}"
    return [*table(rows), *wrapped(told, "  ")]


def _kv(found: "Capacity") -> list[str]:
    kv = found.kv
    if kv is None:
        return []
    of = f" of {kv.kv_tokens:,} ({kv.share:.0%})" if kv.kv_tokens and kv.share is not None else ""
    if kv.at_seconds is not None:
        when = f"by {duration(kv.at_seconds)}" if kv.sequences is None else _after(kv.at_seconds)
        beside = "" if kv.sequences is None else f", with {_sequences(kv.sequences)}"
        return wrapped(f"KV cache at its peak: {kv.tokens:,} tokens{of}, {when}{beside}")
    most = f"; the longest together want {kv.most_wanted:,}" if kv.most_wanted is not None else ""
    unknown = "" if kv.kv_tokens else "; a first run tells how many there are"
    return wrapped(
        f"KV cache, foretold: {kv.tokens:,} tokens{of} with {_sequences(kv.sequences or 0)}{most}{unknown}"
    )


def _sequences(number: int) -> str:
    return f"{number:,} sequence{'' if number == 1 else 's'}"


LOST = """Each replica has a shard. Lost: one is gone half-way. "Replaced": a new machine goes on with its shard at once. "Not
replaced": those that are done with their own do. "Left": the documents of its shard that had no summary then."""


def _replicas(found: "Capacity") -> list[str]:
    if not found.replicas:
        return []
    rows = [("replicas", "last one ends", "one lost, replaced", "not replaced", "left then")]
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
    lines = [*table(rows), *wrapped(LOST, "  ")]
    wanted, doubled = found.needed, found.needed_for_twice
    if wanted is None or doubled is None:
        return lines
    return [
        *lines,
        *wrapped(
            f"for the window of {duration(wanted.seconds)}, which ends {found.window_ends}: "
            f"{replicas_text(wanted.replicas)}; {replicas_text(wanted.replicas_if_one_is_lost)} if one is lost half-way "
            f"and not replaced; {replicas_text(doubled.replicas)} for twice the load"
        ),
    ]
