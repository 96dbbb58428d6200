"""What the tests of insight share."""

import pytest

from tests.commands import Bench, texts
from tests.insight.pages import simulate


@pytest.fixture
def night(bench: Bench) -> Bench:
    """40 texts: one of them twice, one empty, one too long; run on a simulator that was calibrated."""
    corpus = texts(38)
    corpus += [corpus[3], "", "word " * 700]
    assert 0 == simulate(bench, bench.corpus(corpus), "--max-error-rate", "0.5").code
    return bench
