"""A long text cut into parts that fit the context: at its structure where it has one.

The text is first cut into small pieces at headings, paragraphs and sentences (also Chinese, Japanese and
Korean ones) by semantic-text-splitter; pieces are then packed by this model's tokens. Everything is
decided from the front, so that a text that grew at its end keeps the parts before the change.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt
from semantic_text_splitter import MarkdownSplitter

from batchrun.prompts.tokenizer import Tokenizer

BLOCK_CHARACTERS = 32_768
"""Cut apart before the splitter sees it: it took 202 s for 3,000,000 times one letter, 0.1 s for 100,000."""
PIECE_CHARACTERS = 1000
PIECES_IN_ROOM = 8
"""A piece has at most this share of a part's room, so that parts can be filled."""
SEARCHED_SHARE = 0.15
"""Of a part's room, at its end: where the best place to cut is looked for."""
STUMP_SHARE = 0.25
"""A last part with less that is new than this share of the room is evened out with the one before."""

_HEADING = re.compile(r"\s*(#{1,6} |<h[1-6]|[^\n]{1,120}\n([=\-~^*\"+#])\2{2,}[ \t]*(\n|\Z))")
TITLE_SEARCHED = 2000
TITLE_CHARACTERS = 120
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
_ENDS = (re.compile(r"\n[ \t]*\n\s*\Z"), re.compile(r"\n\s*\Z"), re.compile(r"[.!?。！？…][\"'”’)\]]*\s*\Z"))


@dataclass(frozen=True, kw_only=True)
class TextPart:
    """Characters `start` to `end` of the text, and their tokens when they stand alone."""

    start: int
    end: int
    token_ids: npt.NDArray[np.uint32]


class Splitter:
    """Cuts texts into parts of at most `room` tokens that overlap by at most `overlap_share` of it."""

    def __init__(self, tokenizer: Tokenizer, *, overlap_share: float) -> None:
        self._tokenizer = tokenizer
        self._overlap_share = overlap_share

    def split(self, text: str, token_ids: npt.NDArray[np.uint32], room: int) -> list[TextPart]:
        """The parts of a text whose tokens are given, in order; together they are the whole text.

        No cut is inside a character. Where the tokenizer keeps the text's bytes, a part's tokens are those of
        the text; elsewhere it is encoded by itself.
        """
        places = self._tokenizer.token_places(text, token_ids)
        bounds = self._bounds(text, room)
        if places is None:
            return self._split_alone(text, bounds, room)
        cuts, starts = _at_tokens(bounds, places, room)
        return [
            TextPart(
                start=int(cuts[low]), end=int(cuts[high]), token_ids=token_ids[starts[low] : starts[high]]
            )
            for low, high in self._pack(text, cuts, np.diff(starts), room)
        ]

    @staticmethod
    def _bounds(text: str, room: int) -> list[int]:
        """Where n pieces begin and end: n + 1 characters, rising."""
        most = max(8, min(PIECE_CHARACTERS, room // PIECES_IN_ROOM * 2))
        splitter = MarkdownSplitter(most, trim=False)
        bounds = {0, len(text), *(found.end() for found in _PARAGRAPH.finditer(text))}
        for start, end in pairwise(_blocks(text)):
            bounds.update(
                accumulate((len(piece) for piece in splitter.chunks(text[start:end])), initial=start)
            )
        return sorted(bounds)

    def _split_alone(self, text: str, bounds: list[int], room: int) -> list[TextPart]:
        """Parts by the tokens that pieces have by themselves."""
        while True:
            tokens = self._tokenizer.encode_documents([text[a:b] for a, b in pairwise(bounds)]).lengths
            if tokens.max(initial=0) <= room or max(b - a for a, b in pairwise(bounds)) == 1:
                break
            middles = [(a + b) // 2 for a, b in pairwise(bounds) if b - a > 1]
            bounds = sorted({*bounds, *middles})
        spans = self._pack(text, np.asarray(bounds, np.int64), tokens, room)
        parts = self._encode(text, [(bounds[low], bounds[high]) for low, high in spans])
        fitting = [one for part in parts for one in self._fitting(text, part, room)]
        ends = accumulate((part.end for part in fitting), max, initial=0)
        return [part for part, before in zip(fitting, ends, strict=False) if part.end > before]

    def _pack(
        self, text: str, bounds: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64], room: int
    ) -> Iterator[tuple[int, int]]:
        """Half-open ranges of pieces: each filled, then cut back to the best place near its end."""
        sums = np.concatenate([[0], np.cumsum(tokens)])
        last = len(tokens)
        start = fresh = 0  # the part's first piece, and the first that no part before it has
        while True:
            if sums[min(fresh + 1, last)] - sums[start] > room:  # no room for the overlap and more
                start = fresh
            end = max(fresh + 1, int(np.searchsorted(sums, sums[start] + room, side="right")) - 1)
            if end >= last:
                yield start, last
                return
            if self._leaves_stump(sums, start, end, room):
                middle = int(np.searchsorted(sums, (sums[start] + sums[last]) / 2))
                end = min(max(middle, fresh + 1), end)
            else:
                lowest = int(np.searchsorted(sums, sums[start] + room * (1 - SEARCHED_SHARE)))
                end = _best_cut(text, bounds, max(lowest, fresh + 1), end)
            yield start, end
            overlap = int(np.searchsorted(sums, sums[end] - room * self._overlap_share))
            start, fresh = max(overlap, start + 1), end

    @staticmethod
    def _leaves_stump(sums: npt.NDArray[np.int64], start: int, end: int, room: int) -> bool:
        return bool(sums[-1] - sums[end] < room * STUMP_SHARE and sums[-1] - sums[start] < 2 * room)

    def _encode(self, text: str, spans: Sequence[tuple[int, int]]) -> list[TextPart]:
        batch = self._tokenizer.encode_documents([text[start:end] for start, end in spans])
        return [
            TextPart(start=start, end=end, token_ids=batch.ids[low:high])
            for (start, end), (low, high) in zip(spans, pairwise(batch.offsets), strict=True)
        ]

    def _fitting(self, text: str, part: TextPart, room: int) -> list[TextPart]:
        """The part, halved where the pieces have more tokens together than they had alone."""
        if len(part.token_ids) <= room or part.end - part.start < 2:  # noqa: PLR2004 - one character
            return [part]
        middle = (part.start + part.end) // 2
        halves = self._encode(text, [(part.start, middle), (middle, part.end)])
        return [fitting for half in halves for fitting in self._fitting(text, half, room)]


def _at_tokens(
    bounds: list[int], places: npt.NDArray[np.int64], room: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where tokens begin at the bounds or just before them (a blank is its next word's), and the numbers of
    these tokens; more of them where a piece would not fit.
    """
    begins = np.flatnonzero(places >= 0)
    starts = np.unique(begins[np.searchsorted(places[begins], bounds, side="right") - 1])
    while (too_long := np.flatnonzero(np.diff(starts) > room)).size:
        middles = (starts[too_long] + starts[too_long + 1]) // 2
        nearest = begins[np.searchsorted(begins, middles)]
        starts = np.unique(np.concatenate([starts, nearest]))
    return places[starts], starts


def title_of(text: str, values: Mapping[str, str]) -> str:
    """The title of a document: its column `title` where the prompt names it, else the heading it begins with."""
    if given := values.get("title", "").strip():
        return given
    lines = [line.strip() for line in text[:TITLE_SEARCHED].splitlines()]
    for line, below in pairwise([*lines, ""]):
        if not line or line.startswith("..") or _is_ruler(line):  # comments and overlines of reStructuredText
            continue
        if line.startswith("#"):
            return line.strip("# ")[:TITLE_CHARACTERS]
        return line[:TITLE_CHARACTERS] if _is_ruler(below) else ""
    return ""


def _is_ruler(line: str) -> bool:
    return len(line) > 2 and len(set(line)) == 1 and line[0] in '=-~^*"+#'  # noqa: PLR2004


def _blocks(text: str) -> Iterator[int]:
    """Where the text is cut for the splitter: at an empty line, a line, a blank, or anywhere."""
    start = 0
    yield start
    while len(text) - start > BLOCK_CHARACTERS:
        middle, end = start + BLOCK_CHARACTERS // 2, start + BLOCK_CHARACTERS
        places = (text.rfind(mark, middle, end) + len(mark) for mark in ("\n\n", "\n", " "))
        start = next((place for place in places if place > middle), end)
        yield start
    if len(text) > start:
        yield len(text)


def _best_cut(text: str, bounds: npt.NDArray[np.int64], lowest: int, highest: int) -> int:
    """The end of a part between two places: before a heading, after a paragraph, a line, or a sentence."""
    return max(range(min(lowest, highest), highest + 1), key=lambda end: (_rank(text, int(bounds[end])), end))


def _rank(text: str, place: int) -> int:
    before, after = text[max(0, place - 200) : place], text[place : place + 300]
    if _HEADING.match(after) and (not before or before.endswith("\n")):
        return len(_ENDS) + 1
    return next((len(_ENDS) - n for n, pattern in enumerate(_ENDS) if pattern.search(before)), 0)
