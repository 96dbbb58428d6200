"""Standard input as a corpus: copied to a file first, unpacked, and known by its content."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import pyarrow as pa
import xxhash

from batchrun.corpus import jsonl
from batchrun.corpus.files import STDIN, CorpusFile, is_damage
from batchrun.corpus.formats import Format, codec_by_content, format_by_content
from batchrun.errors import CorpusError

COPY_BYTES = 1 << 20
HEAD_BYTES = 1 << 12


def copy(stream: IO[bytes], target: Path) -> CorpusFile:
    """Copy a stream to `target`, unpacked; it is JSONL unless it begins as Parquet or Arrow do. Raises OSError,
    and CorpusError where it is cut off or none of its first lines is a JSON object.

    The hash of what was unpacked stands for size and time, so that the same content again is the same corpus.
    """
    digest = xxhash.xxh3_128()
    head = b""
    with target.open("wb") as file, _unpacked(stream) as unpacked:
        while data := unpacked.read(COPY_BYTES):
            head = head or data[:HEAD_BYTES]
            digest.update(data)
            file.write(data)
    copied = CorpusFile(
        source=STDIN,
        path=target,
        format=format_by_content(head) or Format.JSONL,
        size=target.stat().st_size,
        mtime_ns=0,
        name=STDIN,
        content_hash=f"xxh3:{digest.hexdigest()}",
    )
    if copied.format is Format.JSONL and not jsonl.may_hold_objects(copied):
        looks, what_to_do = _looks(head)
        raise CorpusError(f"standard input is no JSONL: it looks like {looks}", what_to_do)
    return copied


@contextmanager
def _unpacked(stream: IO[bytes]) -> Iterator[IO[bytes]]:
    """The stream, unpacked by its first bytes, and still open afterwards."""
    packed = io.BufferedReader(cast("io.RawIOBase", stream), COPY_BYTES)
    try:
        codec = codec_by_content(packed.peek(HEAD_BYTES))
        yield packed if codec is None else io.BufferedReader(pa.CompressedInputStream(packed, codec))
    except OSError as error:
        if not is_damage(error):
            raise
        raise CorpusError(
            f"standard input is cut off or damaged: {str(error).splitlines()[0]}", "Send it again, whole."
        ) from error
    finally:
        packed.detach()


def _looks(head: bytes) -> tuple[str, str]:
    """What bytes that are no JSONL look like, and what to do with such."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    line = start.split(b"\n", 1)[0]
    if b"\0" in head:
        return "binary data or UTF-16", "Save it in a file named by its kind, and give that."
    if start.startswith(b"["):
        return "a JSON array", "Send an object a line, as jq -c '.[]' makes of it."
    if start.startswith(b"{"):
        return "JSON over several lines", "Send an object a line, as jq -c . makes of it."
    if start.startswith(b"<"):
        return "HTML or XML", "Save it in a file that ends in .html, and give that."
    for name, delimiter in {"TSV": b"\t", "CSV": b",", "CSV with semicolons": b";"}.items():
        if delimiter in line:
            return name, f"Save it in a file that ends in .{name[:3].lower()}, and give that."
    return "plain text", "Save it in a file that ends in .txt (or .csv, for a table), and give that."
