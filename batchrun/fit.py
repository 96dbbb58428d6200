"""How much of a job fits a window of time, foretold."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from batchrun.planning.work import WorkOutline
from batchrun.prediction import Prediction
from batchrun.records import Preference
from batchrun.window import Window

LOADING_SECONDS = 60.0
"""Of a model that no run has loaded yet."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """`seconds` are what is left for running, without loading and publishing; `documents` how many of those to run
    are done in it, None where no rate is known.
    """

    ends: str
    seconds: float
    documents: int | None
    spare_seconds: float | None


@dataclass(frozen=True, kw_only=True)
class Filled:
    """Of the documents of a bucket, or of all where `label` is None, the `share` that fits. `tokens` are of input."""

    label: str | None
    documents: int
    tokens: int
    seconds: float
    share: float = 0.0


def fit(
    window: Window,
    predicted: Prediction,
    outline: WorkOutline,
    *,
    num_rows: int,
    loading_seconds: float | None,
    prefer: Preference | None,
) -> Fit | None:
    """None for a window without an end. By bucket, where some are preferred; else every document counts alike."""
    if not window.is_bounded:
        return None
    loading = LOADING_SECONDS if loading_seconds is None else loading_seconds
    seconds = max(0.0, window.seconds_to_work(num_rows) - loading)
    if predicted.seconds is None:
        return Fit(ends=window.text, seconds=seconds, documents=None, spare_seconds=None)
    filled = fill(seconds, predicted, outline, prefer)
    return Fit(
        ends=window.text,
        seconds=seconds,
        documents=int(sum(one.documents * one.share for one in filled)),
        spare_seconds=seconds - predicted.seconds,
    )


def fill(
    seconds: float, predicted: Prediction, outline: WorkOutline, prefer: Preference | None
) -> list[Filled]:
    """What is done in `seconds`, in the order in which it is run: by bucket, where the longest or the shortest are
    preferred, else all together.
    """
    found, left = [], seconds
    for one in _in_order(predicted, outline, prefer):
        share = min(1.0, left / one.seconds) if one.seconds else 1.0
        found.append(replace(one, share=share))
        left -= one.seconds * share
    return found


def _in_order(predicted: Prediction, outline: WorkOutline, prefer: Preference | None) -> Iterator[Filled]:
    seconds = predicted.seconds or 0.0
    documents, tokens = outline.documents_by_bucket, outline.tokens_by_bucket
    total, total_tokens = sum(documents.values()), sum(tokens.values())
    if prefer not in (Preference.LONGEST, Preference.SHORTEST):
        yield Filled(label=None, documents=total, tokens=total_tokens, seconds=seconds)
        return
    reading = predicted.estimate.reading_seconds if predicted.estimate else seconds
    labels = list(documents)  # from short to long
    for label in reversed(labels) if prefer is Preference.LONGEST else labels:
        read = reading * tokens[label] / max(1, total_tokens)
        written = (seconds - reading) * documents[label] / max(1, total)
        yield Filled(label=label, documents=documents[label], tokens=tokens[label], seconds=read + written)
