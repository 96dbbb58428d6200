"""A file of the corpus: where it is, what it is, and its bytes, unpacked."""

import codecs
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from batchrun.corpus.formats import COMPRESSIONS, Format, suffixes
from batchrun.errors import CorpusError

STDIN = "-"
BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class CorpusFile:
    """A file of the corpus. `source` is its path as given, `name` its path below the folder given; size in
    bytes and time in ns sign it, or where there is one `content_hash`.

    `partitions` are the `key=value` folders above it, as Hive and Spark name them.
    """

    source: str
    path: Path
    format: Format
    size: int
    mtime_ns: int
    name: str = ""
    partitions: dict[str, str | None] = field(default_factory=dict)
    content_hash: str | None = None

    @property
    def label(self) -> str:
        """What messages call it."""
        return "standard input" if self.source == STDIN else str(self.path)

    @property
    def codec(self) -> str | None:
        """Arrow's name of its compression."""
        return None if self.source == STDIN else COMPRESSIONS.get(suffixes(self.source)[1])


@contextmanager
def opened(file: CorpusFile) -> Iterator[io.BufferedReader]:
    """Its bytes, unpacked as they are read."""
    with file.path.open("rb") as raw:
        if file.codec is None:
            yield raw
            return
        if file.size == 0:
            raise CorpusError(
                f"{file.label} is empty (0 bytes), which no {suffixes(file.source)[1]} file is",
                "Write it again, or take it out of the corpus.",
            )
        unpacked = pa.CompressedInputStream(raw, file.codec)
        yield io.BufferedReader(unpacked, BUFFER_BYTES)


def is_utf16(stream: io.BufferedReader) -> bool:
    """By its byte-order mark; without one a text is UTF-8."""
    return stream.peek(2).startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def is_damage(error: OSError) -> bool:
    """Whether bytes could be read and not unpacked; the disk's own errors have a number."""
    return error.errno is None


def unreadable(file: CorpusFile, error: Exception, place: str = "") -> CorpusError:
    """The error for a file that ends the reading; `place` says how far it was good."""
    if isinstance(error, OSError) and not is_damage(error):
        return CorpusError(f"{file.label} can not be read: {error.strerror}", "Check the file and its disk.")
    return CorpusError(
        f"{file.label} is cut off or damaged{place}: {str(error).splitlines()[0]}",
        "Copy or write it again, or take it out of the corpus.",
    )
