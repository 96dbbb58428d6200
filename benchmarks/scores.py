"""How good a summary is, in numbers: held against a reference, and against its own document."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ROUGES = ("rouge1", "rouge2", "rougeL")
RESAMPLES = 2000
RARE_SHARE = 1 / 3
"""A word tells of a part only where at most this share of the document's parts have it."""

_CONTENT_WORD = re.compile(r"[^\W\d_]{5,}")
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean over documents and where it lies in 95 of 100 resamples of them."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.1f} [{self.low:.1f}, {self.high:.1f}]"


def percent(values: Sequence[float] | Floats) -> Interval:
    """The mean of shares, in hundredths, with its percentile bootstrap interval: the same at every call."""
    shares = 100 * np.asarray(values, np.float64)
    picks = np.random.default_rng(0).integers(0, len(shares), (RESAMPLES, len(shares)))
    low, high = np.percentile(shares[picks].mean(axis=1), [2.5, 97.5])
    return Interval(mean=float(shares.mean()), low=float(low), high=float(high))


def rouge(references: Sequence[str], summaries: Sequence[str]) -> dict[str, Floats]:
    """F1 of each summary against its reference, stemmed, by Google's rouge-score (Lin 2004)."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(list(ROUGES), use_stemmer=True)
    scores = [scorer.score(*pair) for pair in zip(references, summaries, strict=True)]
    return {name: np.array([score[name].fmeasure for score in scores]) for name in ROUGES}


def num_words(text: str) -> int:
    return len(_WORD.findall(text))


def telling_words(parts: Sequence[str]) -> list[set[str]]:
    """Of each part its words of more than four letters that at most a third of the parts have."""
    words = [_content_words(part) for part in parts]
    counts = Counter(word for part in words for word in part)
    return [{word for word in part if counts[word] <= RARE_SHARE * len(parts)} for part in words]


def share_touched(summary: str, telling: Sequence[set[str]]) -> float:
    """The share of a document's parts with which a summary has a telling word in common."""
    words = _content_words(summary)
    return sum(not words.isdisjoint(part) for part in telling) / len(telling)


def numbers_found(summary: str, document: str) -> tuple[int, int]:
    """How many of a summary's different numbers stand in its document, and how many it has."""
    said = _numbers(summary)
    return len(said & _numbers(document)), len(said)


def _content_words(text: str) -> set[str]:
    return set(_CONTENT_WORD.findall(text.lower()))


def _numbers(text: str) -> set[str]:
    """Numbers without their commas: 1,000 is 1000."""
    return {number.replace(",", "") for number in _NUMBER.findall(text)}
