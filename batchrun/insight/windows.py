"""Prompt tokens read and output tokens written in windows of five minutes, from totals that rise."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

WINDOW_SECONDS = 300.0
MOST_WINDOWS = 2016
"""A week of them; what goes on longer is counted in windows of as many whole minutes as it takes."""

Totals = Sequence[tuple[float, float, float]]
"""Rising seconds, and the prefill and decode tokens by then."""


@dataclass(frozen=True, kw_only=True)
class TokenWindow:
    """From `start_seconds` for `seconds`; the last may be shorter than the others."""

    start_seconds: float
    seconds: float
    prefill_tokens: int
    decode_tokens: int


def token_windows(totals: Totals) -> list[TokenWindow]:
    """Between two samples tokens come evenly: windows are no finer than samples are apart."""
    if len(totals) < 2:  # noqa: PLR2004 - a time between two moments
        return []
    moments, prefill, decode = (np.array(column, float) for column in zip(*totals, strict=True))
    first, last = float(moments[0]), float(moments[-1])
    width = WINDOW_SECONDS * max(1, -(-(last - first) // (WINDOW_SECONDS * MOST_WINDOWS)))
    edges = np.append(np.arange(first, last, width), last)
    read, written = (np.diff(np.interp(edges, moments, column)) for column in (prefill, decode))
    return [
        TokenWindow(
            start_seconds=float(start),
            seconds=float(length),
            prefill_tokens=round(some_read),
            decode_tokens=round(some_written),
        )
        for start, length, some_read, some_written in zip(
            edges[:-1], np.diff(edges), read, written, strict=True
        )
    ]
