"""Two measures of a summary that need no reference."""

import pytest

from batchrun.insight.quality import extractive_coverage, share_repeated


@pytest.mark.parametrize(
    ("summary", "expected"),
    [("one two three", 0.0), ("a b c d a b c d", 1 / 5), ("so so so so so so", 2 / 3), ("", 0.0)],
)
def test_repeated_runs_of_four_words(summary: str, expected: float) -> None:
    """Those that stood in the summary before, of all."""
    assert expected == pytest.approx(share_repeated(summary))


@pytest.mark.parametrize(
    ("summary", "expected"),
    [("The cat sat.", 1.0), ("A dog sat", 1 / 3), ("", 0.0), ("Sat, CAT!", 1.0)],
)
def test_coverage_is_the_share_of_words_that_the_text_has(summary: str, expected: float) -> None:
    """In any case, and without punctuation."""
    assert expected == pytest.approx(extractive_coverage(summary, "the cat sat on the mat"))
