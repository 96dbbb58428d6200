"""What the longest input and the longest output allowed cost, and twice the load."""

from dataclasses import dataclass

from batchrun.insight.load import Load
from batchrun.insight.speed import Speed

INPUT_LIMITS = (1024, 2048, 8192, 32768, 131072)
OUTPUT_LIMITS = (32, 64, 128, 256, 512, 1024)
TWICE = "documents doubled"


@dataclass(frozen=True, kw_only=True)
class Change:
    """The same work, changed: `documents` and their input tokens, output tokens, and the seconds of running on one
    replica, None where they can not be told. `affected_share`: of documents that are cut or left out, of calls that are cut.
    """

    what: str
    limit: int | None
    affected_share: float
    documents: int
    input_tokens: int
    output_tokens: int
    seconds: float | None


def input_limits(load: Load, speed: Speed) -> list[Change]:
    """For each limit below the longest document: cut there, and left out from there on."""
    longest = load.classes[-1].shortest if load.classes else 0
    return [
        _change(what, limit, load.of_length(limit).documents / load.documents, changed, speed)
        for limit in INPUT_LIMITS
        if limit <= longest
        for what, changed in (("truncate", load.truncated(limit)), ("leave out", load.below(limit)))
    ]


def output_limits(load: Load, speed: Speed) -> list[Change]:
    """For each limit below the longest output. Without a profile what outputs take is not told apart."""
    longest = max((tokens for tokens, _ in load.outputs), default=0)
    return [
        _change(
            "cap outputs",
            limit,
            load.capped_share(limit),
            load.capped(limit),
            speed,
            is_told=speed.profile is not None,
        )
        for limit in OUTPUT_LIMITS
        if limit < longest
    ]


def twice(load: Load, speed: Speed) -> Change:
    """Twice as many documents of the same lengths."""
    return _change(TWICE, None, 0.0, load.times(2), speed)


def _change(
    what: str, limit: int | None, affected: float, changed: Load, speed: Speed, *, is_told: bool = True
) -> Change:
    took = speed.took(changed) if is_told else None
    return Change(
        what=what,
        limit=limit,
        affected_share=affected,
        documents=round(changed.documents),
        input_tokens=round(changed.input_tokens),
        output_tokens=round(changed.written_tokens),
        seconds=None if took is None else took.seconds,
    )
