"""What a file is, by its ending or, without a known one, by its first bytes."""

import json
from enum import IntEnum, StrEnum

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2"}
"""Endings of compressed files, with Arrow's names of the codecs."""


_MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd", "bz2": b"BZh"}


class Format(StrEnum):
    PARQUET = "parquet"
    ARROW = "arrow"
    JSONL = "jsonl"
    CSV = "csv"
    TSV = "tsv"
    TEXT = "text"
    HTML = "html"

    @property
    def is_document(self) -> bool:
        """Whether a whole file is one row."""
        return self in (Format.TEXT, Format.HTML)

    @property
    def has_own_compression(self) -> bool:
        return self in (Format.PARQUET, Format.ARROW)


class Rank(IntEnum):
    """Of what lies in one folder, only the highest rank is the corpus: a README beside tables is no row."""

    DOCUMENTS = 1
    JSON = 2  # `.json` with an object a line, as Spark and pandas write; often it is metadata instead
    TABLES = 3


SUFFIXES = {
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".feather": Format.ARROW,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    ".txt": Format.TEXT,
    ".md": Format.TEXT,
    ".rst": Format.TEXT,
    ".html": Format.HTML,
    ".htm": Format.HTML,
}


def known_endings() -> str:
    plain = ", ".join(SUFFIXES)
    return f"{plain}; all but Parquet and Arrow also compressed: {', '.join(COMPRESSIONS)}"


def suffixes(path: str) -> tuple[str, str]:
    """The ending without that of compression, and that of compression or nothing; in lower case."""
    parts = path.rpartition("/")[2].lower().rsplit(".", 2)
    last = f".{parts[-1]}" if len(parts) > 1 else ""
    if last not in COMPRESSIONS:
        return last, ""
    return (f".{parts[1]}" if parts[2:] else "", last)


def format_by_suffix(path: str) -> Format | None:
    suffix, compressed = suffixes(path)
    found = SUFFIXES.get(suffix)
    return None if compressed and found and found.has_own_compression else found


def is_json(path: str) -> bool:
    return suffixes(path)[0] == ".json"


def codec_by_content(head: bytes) -> str | None:
    """Arrow's name of the codec of compressed bytes, by the first of them."""
    return next((codec for codec, magic in _MAGIC.items() if head.startswith(magic)), None)


def format_by_content(head: bytes) -> Format | None:
    """By the first bytes of the (unpacked) file."""
    if head.startswith(b"PAR1"):
        return Format.PARQUET
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return Format.ARROW
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return Format.JSONL
    return None


def holds_json_lines(head: bytes) -> bool:
    """Whether a `.json` file begins with a line that is an object: pretty-printed metadata does not."""
    lines = head.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)
    if not lines[0].startswith(b"{"):
        return False
    if len(lines) == 1:  # one line, longer than the head
        return True
    try:
        return isinstance(json.loads(lines[0]), dict)
    except (ValueError, RecursionError):
        return False
