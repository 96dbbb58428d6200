"""Lengths in tokens, from how often each comes: their percentiles, and a histogram."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BARS = 48


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Exact percentiles of `number` lengths. `counts` are those of the histogram between neighbouring `edges`."""

    number: int
    total: int
    p50: int
    p95: int
    highest: int
    edges: tuple[int, ...]
    counts: tuple[int, ...]


def lengths_by_bucket(rows: Sequence[tuple[int, int, int]], edges: Sequence[int]) -> dict[int, Lengths]:
    """From rows of (bucket, tokens, how many have so many)."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for bucket, tokens, number in rows:
        found[bucket].append((tokens, number))
    return {bucket: _lengths(sorted(pairs), edges) for bucket, pairs in found.items()}


def even_edges(longest: int) -> list[int]:
    """Of up to BARS ranges of the same round width."""
    width = next(width for width in _ROUND if width * BARS > longest)
    return [*range(0, longest + width + 1, width)]


def doubling_edges(longest: int) -> list[int]:
    """Of ranges of which two together double a length, from 16 tokens on."""
    edges = [0, *(round(16 * 2 ** (step / 2)) for step in range(BARS))]
    return edges[: bisect_right(edges, longest) + 1]


_ROUND = [digit * 10**power for power in range(10) for digit in (1, 2, 5)]


def _lengths(pairs: list[tuple[int, int]], edges: Sequence[int]) -> Lengths:
    tokens, numbers = (np.array(column) for column in zip(*pairs, strict=True))
    reached = np.cumsum(numbers)
    p50, p95 = (int(tokens[np.searchsorted(reached, share * reached[-1])]) for share in (0.5, 0.95))
    return Lengths(
        number=int(reached[-1]),
        total=int((tokens * numbers).sum()),
        p50=p50,
        p95=p95,
        highest=int(tokens[-1]),
        edges=tuple(edges),
        counts=tuple(np.histogram(tokens, bins=edges, weights=numbers)[0].astype(int).tolist()),
    )
