"""Standard input as a corpus: copied to a file first, and known by its content."""

from pathlib import Path
from typing import IO

import xxhash

from batchrun.corpus.files import STDIN, CorpusFile
from batchrun.corpus.formats import Format, format_by_content

COPY_BYTES = 1 << 20


def copy(stream: IO[bytes], target: Path) -> CorpusFile:
    """Copy a stream, JSONL unless it begins as Parquet or Arrow do, to `target`. Raises OSError.

    The content's hash stands for size and time, so that the same content again is the same corpus.
    """
    digest = xxhash.xxh3_128()
    head = b""
    with target.open("wb") as file:
        while data := stream.read(COPY_BYTES):
            head = head or data
            digest.update(data)
            file.write(data)
    return CorpusFile(
        source=STDIN,
        path=target,
        format=format_by_content(head) or Format.JSONL,
        size=target.stat().st_size,
        mtime_ns=0,
        name=STDIN,
        content_hash=f"xxh3:{digest.hexdigest()}",
    )
