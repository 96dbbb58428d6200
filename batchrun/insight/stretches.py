"""Stretches of requests that ran beside each other: what is drawn again and again, in place of single ones."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

MOST_STRETCHES = 200
"""Of a sample: shorter ones are put together."""


def stretches_of(begins: Floats, ends: Floats) -> Integers:
    """The stretch of each request, from 0. One is as long as its requests had others beside them, in the mean: those
    of the sample whose time touched theirs, which is twice as many as ran at a moment where all take equally long.
    So what one request shares with another is mostly in its own stretch or the next.
    """
    beside = np.searchsorted(np.sort(begins), ends, side="right")
    beside -= np.searchsorted(np.sort(ends), begins, side="left")
    order = np.argsort(ends, kind="stable")
    found = np.empty(len(ends), np.int64)
    found[order] = _cut(beside[order].tolist(), -(-len(ends) // MOST_STRETCHES))
    return found


def _cut(beside: list[int], least: int) -> list[int]:
    """The last one, which is not full, goes with the one before."""
    places: list[int] = []
    number = size = total = 0
    for each in beside:
        if size >= least and size * size >= total > 0:
            number, size, total = number + 1, 0, 0
        size, total = size + 1, total + each
        places.append(number)
    if number and (size < least or size * size < total):
        places[-size:] = [number - 1] * size
    return places


def singles(size: int) -> Integers:
    """Each by itself, or with its neighbours where there would be more than MOST_STRETCHES."""
    return np.arange(size) // max(1, -(-size // MOST_STRETCHES))


def crossed(a: Integers, b: Integers) -> Integers:
    """What is in one stretch of both; more than MOST_STRETCHES of these are put together by chance."""
    _, found = np.unique(a * (int(b.max()) + 1) + b, return_inverse=True)
    number = int(found.max()) + 1
    if number <= MOST_STRETCHES:
        return np.asarray(found, np.int64)
    lots = np.random.default_rng(number).permutation(number) % MOST_STRETCHES
    in_lots: Integers = lots[found]
    return in_lots


def effective(stretches: Integers) -> int:
    """How many of equal length would tell as much (Kish 1965): the square of all by the sum of their squares."""
    sizes = np.bincount(stretches).astype(np.float64)
    return int(sizes.sum() ** 2 / (sizes**2).sum() + 1e-9) if len(sizes) else 0
