"""How long outputs are that no model writes: drawn for each document, short mostly, long now and then."""

from math import exp
from statistics import NormalDist

import xxhash

_NORMAL = NormalDist()


def lognormal_length(key: str, *, seed: int, median: float, sigma: float) -> int:
    """The output tokens of the document `key`, at least 1: the same for one key and seed, in any order.

    exp of a normal distribution: half are longer than `median`, 2.3 % longer than median × exp(2 × sigma).
    """
    quantile = (xxhash.xxh3_64_intdigest(key.encode(), seed) + 1) / (2**64 + 2)
    return max(1, round(median * exp(sigma * _NORMAL.inv_cdf(quantile))))
