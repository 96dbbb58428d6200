"""What a call is known by: `input_hash`, 16 bytes over everything variable that enters its prompt."""

from collections.abc import Sequence

import xxhash

DOCUMENT, PART, MERGE = "document", "part", "merge"
"""The stages of a call: a whole document, a part of a long one, summaries of parts put together."""


def input_hash(stage: str, *fields: str) -> bytes:
    """xxh3_128 over stage and fields, each with its length before it: no two lists of fields look alike."""
    return xxhash.xxh3_128_digest(b"".join(map(_prefixed, (stage, *fields))))


def _prefixed(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(8, "little") + data


_DOCUMENT = _prefixed(DOCUMENT)


def document_key(text: str, variables: Sequence[str] = ()) -> bytes:
    """The key of a whole document; `variables` are names and values of the columns in its prompt, in turn."""
    if variables:
        return input_hash(DOCUMENT, *variables, text)
    data = text.encode()
    return xxhash.xxh3_128_digest(_DOCUMENT + len(data).to_bytes(8, "little") + data)
