"""When more is planned than a window holds: how much fits, what to delay, which limit would make it fit."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from batchrun.estimate import EDGES
from batchrun.fit import Filled, fill
from batchrun.insight.load import Load
from batchrun.insight.speed import Speed
from batchrun.planning.work import WorkOutline
from batchrun.records import Preference

MOST_CUT = 0.5
"""Of documents or outputs: a limit that cuts as many or more is no advice."""


@dataclass(frozen=True, kw_only=True)
class Delayed:
    """Documents of a bucket, or of all without a label, that do not fit, and their input tokens."""

    label: str | None
    documents: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """What fits with a preference, and what of it all; `share` is of the documents."""

    prefer: str
    documents: int
    tokens: int
    share: float
    delayed: tuple[Delayed, ...]


@dataclass(frozen=True, kw_only=True)
class LengthLimit:
    """The highest that fits, in input tokens. `documents` have that many or more, `tokens` are not read then."""

    limit: int
    documents: int
    tokens: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class OutputLimit:
    """The highest that fits, in output tokens of a call. `share` of the calls wrote more."""

    limit: int
    share: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Excess:
    """`seconds` of running are there, `missing_seconds` are not. A limit is None where none that cuts less than
    `MOST_CUT` makes it fit.
    """

    seconds: float
    missing_seconds: float
    fitting: tuple[Fitting, ...]
    truncate: LengthLimit | None
    leave_out: LengthLimit | None
    output: OutputLimit | None


def excess(seconds: float, load: Load, speed: Speed, outline: WorkOutline) -> Excess | None:
    """Of a load for which `seconds` of running on one replica, or of several together, are there. None where it fits,
    or no speed is known.
    """
    took = speed.took(load)
    if took is None or took.seconds <= seconds:
        return None
    return Excess(
        seconds=seconds,
        missing_seconds=took.seconds - seconds,
        fitting=tuple(_fitting(seconds, load, speed, outline, prefer) for prefer in Preference),
        truncate=_length_limit(seconds, load, speed, Load.truncated),
        leave_out=_length_limit(seconds, load, speed, Load.below),
        output=_output_limit(seconds, load, speed),
    )


def _fitting(seconds: float, load: Load, speed: Speed, outline: WorkOutline, prefer: Preference) -> Fitting:
    filled = fill(seconds, speed.prediction(load), outline, prefer)
    documents = int(sum(one.documents * one.share for one in filled))
    return Fitting(
        prefer=prefer.value,
        documents=documents,
        tokens=int(sum(one.tokens * one.share for one in filled)),
        share=documents / max(1, sum(one.documents for one in filled)),
        delayed=tuple(_delayed(filled)),
    )


def _delayed(filled: Iterable[Filled]) -> Iterable[Delayed]:
    for one in filled:
        documents = one.documents - int(one.documents * one.share)
        if documents:
            yield Delayed(label=one.label, documents=documents, tokens=int(one.tokens * (1 - one.share)))


def _length_limit(
    seconds: float, load: Load, speed: Speed, limited: Callable[[Load, int], Load]
) -> LengthLimit | None:
    longest = load.classes[-1].shortest
    for limit in reversed([edge for edge in EDGES if edge <= longest]):
        affected = load.of_length(limit).documents
        if affected >= MOST_CUT * load.documents:
            return None
        left = limited(load, limit)
        took = speed.took(left)
        if took is not None and took.seconds <= seconds:
            return LengthLimit(
                limit=limit,
                documents=round(affected),
                tokens=round(load.input_tokens - left.input_tokens),
                seconds=took.seconds,
            )
    return None


def _output_limit(seconds: float, load: Load, speed: Speed) -> OutputLimit | None:
    """By halves: the time falls with the limit. Without a profile what outputs take is not known."""
    if speed.profile is None or _seconds(load.capped(1), speed) > seconds:
        return None
    fits, too_many = 1, max(tokens for tokens, _ in load.outputs)
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if _seconds(load.capped(middle), speed) <= seconds:
            fits = middle
        else:
            too_many = middle
    share = load.capped_share(fits)
    if share >= MOST_CUT:
        return None
    return OutputLimit(limit=fits, share=share, seconds=_seconds(load.capped(fits), speed))


def _seconds(load: Load, speed: Speed) -> float:
    took = speed.took(load)
    assert took is not None, "a profile is known"
    return took.seconds
