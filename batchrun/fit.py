"""How much of a job fits a window of time, foretold."""

from collections.abc import Iterator
from dataclasses import dataclass

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
    left, done = seconds, 0.0
    for documents, needed in _in_order(predicted, outline, prefer):
        share = min(1.0, left / needed) if needed else 1.0
        done += documents * share
        left -= needed * share
    return Fit(
        ends=window.text, seconds=seconds, documents=int(done), spare_seconds=seconds - predicted.seconds
    )


def _in_order(
    predicted: Prediction, outline: WorkOutline, prefer: Preference | None
) -> Iterator[tuple[int, float]]:
    """Documents and seconds of each bucket in the order in which they are run; of all together without one."""
    seconds = predicted.seconds or 0.0
    documents, tokens = outline.documents_by_bucket, outline.tokens_by_bucket
    total, total_tokens = sum(documents.values()), sum(tokens.values())
    if prefer not in (Preference.LONGEST, Preference.SHORTEST):
        yield total, seconds
        return
    reading = predicted.estimate.reading_seconds if predicted.estimate else seconds
    labels = list(documents)  # from short to long
    for label in reversed(labels) if prefer is Preference.LONGEST else labels:
        read = reading * tokens[label] / max(1, total_tokens)
        yield documents[label], read + (seconds - reading) * documents[label] / max(1, total)
