"""The text of an HTML page: what a reader would see, a line for each block."""

import codecs
import re

from selectolax.lexbor import LexborHTMLParser

UNSEEN = ["script", "style", "noscript", "template", "svg", "iframe", "object"]
BLOCKS = (
    "address article aside blockquote br caption dd details dialog div dl dt fieldset figcaption figure footer "
    "form h1 h2 h3 h4 h5 h6 header hr legend li main nav ol option p pre section summary table title tr ul"
)
CELLS = "td, th"
BREAK = "\u2029"
CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w:.-]+)", re.IGNORECASE)
CHARSET_WITHIN = 1024
"""Bytes in which the HTML standard (13.2.3.2, prescan) looks for the encoding."""

ENCODINGS = re.compile(
    r"utf-8|cp\d+|iso8859-\d+|koi8-[rtu]|gb\w+|hz|big5\w*|shift_jis\w*|euc_\w+|iso2022_\w+|mac-\w+|tis-620"
)


TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)[^>]*>?")
UNCOUNTED = frozenset(
    [
        "area",
        "base",
        "br",
        "col",
        "colgroup",
        "dd",
        "dt",
        "embed",
        "hr",
        "img",
        "input",
        "li",
        "link",
        "meta",
        "optgroup",
        "option",
        "p",
        "param",
        "source",
        "tbody",
        "td",
        "tfoot",
        "th",
        "thead",
        "tr",
        "track",
        "wbr",
    ]
)
"""Tags that are empty, or that end without being ended: a page may have any number of them open."""

MAX_DEPTH = 5000
"""Of open tags. The parser looks through all of them at each new one: 0.9 s for 20,000, a minute for 160,000;
browsers end at 512.
"""


def text_of(page: str) -> str:
    """The text with its whitespace as a browser shows it; scripts, styles and the like left out.

    Of a page nested deeper than MAX_DEPTH all that is no tag, in one line.
    """
    if page.count("<") > MAX_DEPTH and _depth(page) > MAX_DEPTH:
        return " ".join(TAG.sub(" ", page).split())
    tree = LexborHTMLParser(page.replace(BREAK, "\n"))
    tree.strip_tags(UNSEEN)
    for block in tree.css(BLOCKS.replace(" ", ", ")):
        block.insert_before(BREAK)
        block.insert_after(BREAK)
    for cell in tree.css(CELLS):
        cell.insert_after(" ")
    text = tree.root.text() if tree.root is not None else ""
    lines = (" ".join(line.split()) for line in text.split(BREAK))
    return "\n".join(line for line in lines if line)


def _depth(page: str) -> int:
    """The most tags that are open at one time."""
    depth = deepest = 0
    for tag in TAG.finditer(page):
        if tag[2].lower() not in UNCOUNTED:
            depth = max(0, depth - 1) if tag[1] else depth + 1
            deepest = max(deepest, depth)
    return deepest


def charset(data: bytes) -> str:
    """The encoding that a page declares, by Python's name; UTF-8 where it declares none that is known."""
    declared = CHARSET.search(data[:CHARSET_WITHIN])
    try:
        name = codecs.lookup(declared[1].decode("ascii", "replace")).name if declared else "utf-8"
    except LookupError:
        return "utf-8"
    if name in {"iso8859-1", "ascii"}:  # as every browser reads these two
        return "cp1252"
    return name if ENCODINGS.fullmatch(name) else "utf-8"
