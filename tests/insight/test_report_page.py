"""The page of `batchrun report` in a real browser: light and dark, wide and narrow."""

from itertools import product
from pathlib import Path

import pytest

from tests.commands import Bench, texts
from tests.insight.browser import CHROMIUM, lay_out
from tests.insight.pages import report, simulate

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")

READABLE = 4.5
"""The contrast that WCAG 2.2 asks of text."""
SMALLEST = 11.0
"""Pixels of the smallest letters, those of a picture on a phone."""


def test_the_page_is_readable(bench: Bench, tmp_path: Path) -> None:
    """Of a run, and of one that computed nothing: no sideways scrolling, no word over another, letters large enough
    and apart from what is behind them.
    """
    corpus = bench.corpus([*texts(60), "<script>alert(1)</script>", "", "word " * 700, "x" * 400])
    ids = [simulate(bench, corpus, "--max-error-rate", "0.5").json["run_id"]]
    ids.append(bench.submit(corpus, "--max-error-rate", "0.5").json["run_id"])
    pages = [report(bench, run_id, "--price", "2.5")[0] for run_id in ids]
    for page, width, dark in product(pages, (390, 1400), (False, True)):
        layout = lay_out(page.html, tmp_path, width=width, dark=dark)
        found = layout.found
        assert [] == layout.console
        assert (dark, width) == (found["dark"], found["width"])
        assert dark == (sum(found["background"]) < 3 * 128)
        assert found["scrollWidth"] <= width
        assert [] == found["overlaps"], (width, dark)
        assert 50 < len(found["texts"])
        assert [] == [each for each in found["texts"] if each["contrast"] < READABLE], (width, dark)
        assert [] == [each for each in found["texts"] if each["pixels"] < SMALLEST], (width, dark)
