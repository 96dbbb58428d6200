"""What `batchrun capacity` says of limits, and of what is too much for a window."""

from typing import TYPE_CHECKING

from batchrun.cli.layout import table, wrapped
from batchrun.clock import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from batchrun.insight.capacity import Capacity
    from batchrun.insight.excess import Excess, Fitting
    from batchrun.insight.limits import Change

SPEC_KEYS = """inputs end by engine.max_model_len with long_documents.policy = "truncate", outputs by output.max_tokens: a new job,
whose summaries are all computed anew; what is left out of one night stays pending, by --prefer shortest"""


def replicas_text(replicas: int | None) -> str:
    """How many are enough."""
    if replicas is None:
        return "no number of replicas is enough"
    return f"{replicas:,} replica{'s' if replicas > 1 else ''}"


def limit_lines(found: "Capacity") -> list[str]:
    """A line for each limit, and for twice the load."""
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
    return [*table(rows), *wrapped(SPEC_KEYS, "  ")]


def _change(one: "Change") -> str:
    if one.limit is None:
        return "twice the load"
    return {
        "truncate": f"inputs end at {one.limit:,}",
        "leave out": f"without those of {one.limit:,} or more",
        "cap outputs": f"outputs end at {one.limit:,}",
    }[one.what]


def excess_lines(found: "Capacity") -> list[str]:
    """Whether all fits the window that was asked for; if not, what does, and what would make it fit."""
    too_much = found.excess
    if found.needed is None:
        return []
    at_work = replicas_text(found.replicas_at_work)
    if too_much is None:
        return wrapped(f"all fits the window with {at_work}")
    lines = wrapped(
        f"too much for the window with {at_work}: {duration(too_much.seconds)} of running are there, "
        f"{duration(too_much.missing_seconds)} more are needed"
    )
    for one in too_much.fitting:
        lines += wrapped(_fitting(one), "  ", "    ")
    for way in _ways_to_fit(too_much, has_profile=found.by_profile is not None):
        lines += wrapped(way, "  ", "    ")
    return lines


def _fitting(one: "Fitting") -> str:
    delayed = ", ".join(
        f"{part.documents:,} {f'of {part.label} ' if part.label else ''}({part.tokens:,} tokens)"
        for part in one.delayed
    )
    fits = f"{one.documents:,} documents fit ({one.share:.0%}), {one.tokens:,} tokens"
    return f"--prefer {one.prefer}: {fits}; delay {delayed}"


def _ways_to_fit(too_much: "Excess", *, has_profile: bool) -> "Iterator[str]":
    """A line for each kind of limit: that does it, or that none does which cuts under half."""
    for limit, does, fails in (
        (
            too_much.leave_out,
            "you leave out those of {:,} tokens or more",
            "with under half of the documents left out",
        ),
        (too_much.truncate, "inputs end at {:,} tokens", "with under half of the inputs cut"),
    ):
        if limit is None:
            yield f"it does not fit {fails}"
        else:
            yield (
                f"it fits if {does.format(limit.limit)}: {limit.documents:,} documents, {limit.tokens:,} tokens less to "
                f"read, {duration(limit.seconds)}"
            )
    out = too_much.output
    if out is not None:
        yield (
            f"it fits if outputs end at {out.limit:,} tokens, which cuts {out.share:.0%} of them: {duration(out.seconds)}"
        )
    elif has_profile:
        yield "it does not fit with under half of the outputs cut"
    else:
        yield "what shorter outputs save is told with a profile"
