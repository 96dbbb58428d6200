"""Lengths by how often each comes."""

import random

import numpy as np
import pytest

from batchrun.insight.lengths import BARS, doubling_edges, even_edges, lengths_by_bucket


def test_percentiles_and_counts_are_exact() -> None:
    """As if each length had been kept."""
    picks = random.Random(4)  # noqa: S311 - lengths, not secrets
    values = [round(picks.lognormvariate(5, 1)) for _ in range(999)]
    rows = [(7, value, values.count(value)) for value in set(values)]
    edges = even_edges(max(values))
    found = lengths_by_bucket(rows, edges)[7]
    assert (999, sum(values), max(values)) == (found.number, found.total, found.highest)
    assert np.percentile(values, [50, 95], method="inverted_cdf").tolist() == [found.p50, found.p95]
    assert 999 == sum(found.counts)
    assert found.counts[3] == sum(edges[3] <= value < edges[4] for value in values)
    assert {} == lengths_by_bucket([], edges)


@pytest.mark.parametrize("longest", [1, 16, 20, 1000, 96_652])
def test_a_histogram_reaches_beyond_the_longest(longest: int) -> None:
    for edges in (even_edges(longest), doubling_edges(longest)):
        assert edges[-2] <= longest < edges[-1]
        assert len(edges) <= BARS + 2
