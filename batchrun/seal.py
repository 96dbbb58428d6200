"""Files of ours held to the bytes that were written: hashes of files, and JSON records that carry their own.

A record is sealed by a last field, `"xxh3"`, the hash of everything before it: a bit that flips in it is found, where
the record would still be JSON with another number or path. A record without the field (of an older version, or
mended by hand) is believed as it stands.
"""

import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import xxhash

T = TypeVar("T")

_SEAL = re.compile(rb',"xxh3":"([0-9a-f]{32})"\}\Z')


def content_hash(path: Path) -> str:
    """xxh3_128 of a file's bytes, as 32 hex digits. Raises OSError."""
    whole = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            whole.update(block)
    return whole.hexdigest()


def encode(record: Any) -> bytes:
    """A record with at least one field as a sealed JSON object."""
    open_end = msgspec.json.encode(record).removesuffix(b"}")
    return open_end + f',"xxh3":"{xxhash.xxh3_128_hexdigest(open_end)}"}}'.encode()


def decode(data: bytes, kind: type[T]) -> T:
    """The record in `data`. Raises msgspec.MsgspecError where it is none, or another than was sealed."""
    found = _SEAL.search(data)
    if found and xxhash.xxh3_128_hexdigest(data[: found.start()]).encode() != found[1]:
        raise msgspec.DecodeError("its bytes are not those that were written")
    return msgspec.json.decode(data, type=kind)
