"""How a summary reads, in two shares that need no reference."""

import re

_WORD = re.compile(r"\w+")


def share_repeated(summary: str) -> float:
    """The share of a summary's runs of four words that stood in it before; 0 where it has none."""
    words = _words(summary)
    runs = [tuple(words[start : start + 4]) for start in range(len(words) - 3)]
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def extractive_coverage(summary: str, text: str) -> float:
    """The share of a summary's words that stand in fragments taken from the text (Grusky et al. 2018, Newsroom).

    A fragment may be a single word, so that it is the share of words that the text has; 0 where there are none.
    """
    words, known = _words(summary), set(_words(text))
    return sum(word in known for word in words) / len(words) if words else 0.0


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
