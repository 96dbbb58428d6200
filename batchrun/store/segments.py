"""Segments: immutable files of memo rows, each named with the hash of its bytes."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from batchrun import atomic_file
from batchrun.records import MemoStatus, Summary
from batchrun.seal import content_hash

SCHEMA = pa.schema(
    [
        pa.field("hash_hi", pa.uint64(), nullable=False),
        pa.field("hash_lo", pa.uint64(), nullable=False),
        pa.field("rank", pa.int8(), nullable=False),
        pa.field("progress", pa.int64(), nullable=False),
        pa.field("content_hash", pa.uint64(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("summary", pa.string()),
        pa.field("error_type", pa.string()),
        pa.field("error", pa.string()),
        pa.field("finish_reason", pa.string()),
        pa.field("flags", pa.list_(pa.string())),
        pa.field("input_tokens", pa.int64()),
        pa.field("output_tokens", pa.int64()),
        pa.field("kept_tokens", pa.int64()),
        pa.field("num_parts", pa.int32()),
        pa.field("attempts", pa.int32()),
        pa.field("token_ids", pa.list_(pa.uint32())),
        pa.field("engine", pa.string()),
        pa.field("document_hi", pa.uint64()),  # of a nested call: the key of its document
        pa.field("document_lo", pa.uint64()),
        pa.field("calls_hi", pa.list_(pa.uint64())),  # of a long document: the keys of its calls
        pa.field("calls_lo", pa.list_(pa.uint64())),
    ]
)
"""`rank`, `progress` and `content_hash` are the precedence of a row among those of its key."""

_RANKS = {MemoStatus.OK: 2, MemoStatus.FAILED: 1, MemoStatus.PARTIAL: 0}


def precedence(row: Summary) -> tuple[int, int, int]:
    """How a memo row stands among those of its key: the greatest wins, whatever was read first.

    `ok` beats `failed` beats `partial`; of two failures the one with more attempts wins, of two
    partials the longer; what is still equal is decided by the smaller content hash.
    """
    progress = {MemoStatus.FAILED: row.attempts, MemoStatus.PARTIAL: row.output_tokens}.get(row.status, 0)
    return _RANKS[row.status], progress, -_content_hash(row)


def _content_hash(row: Summary) -> int:
    """xxh3_64 of the whole row."""
    return xxhash.xxh3_64_intdigest(msgspec.msgpack.encode(row))


def to_table(rows: Sequence[Summary]) -> pa.Table:
    """Memo rows as a table of `SCHEMA`."""
    hashes = np.frombuffer(b"".join(row.key for row in rows), ">u8").astype(np.uint64).reshape(-1, 2)
    standing = [precedence(row) for row in rows]
    columns = {
        "hash_hi": hashes[:, 0],
        "hash_lo": hashes[:, 1],
        "rank": [rank for rank, _, _ in standing],
        "progress": [progress for _, progress, _ in standing],
        "content_hash": np.array([-negated for _, _, negated in standing], np.uint64),
        "status": [row.status for row in rows],
        "summary": [row.summary for row in rows],
        "error_type": [row.error_type for row in rows],
        "error": [row.error for row in rows],
        "finish_reason": [row.finish_reason for row in rows],
        "flags": [list(row.flags) for row in rows],
        "input_tokens": [row.input_tokens for row in rows],
        "output_tokens": [row.output_tokens for row in rows],
        "kept_tokens": [row.kept_tokens for row in rows],
        "num_parts": [row.num_parts for row in rows],
        "attempts": [row.attempts for row in rows],
        "token_ids": [None if row.token_ids is None else list(row.token_ids) for row in rows],
        "engine": [row.engine for row in rows],
        "document_hi": [_half(row.document_key, 0) for row in rows],
        "document_lo": [_half(row.document_key, 8) for row in rows],
        "calls_hi": [[_half(key, 0) for key in row.calls] or None for row in rows],
        "calls_lo": [[_half(key, 8) for key in row.calls] or None for row in rows],
    }
    return pa.table(columns, schema=SCHEMA)


def _half(key: bytes | None, start: int) -> int | None:
    return None if key is None else int.from_bytes(key[start : start + 8], "big")


def write(folder: Path, stem: str, owner: str, rows: Sequence[Summary]) -> Path:
    """Write memo rows as one durable segment `<stem>.<xxh3>.parquet`. Raises OSError."""
    temporary = atomic_file.temporary_path(folder, owner)
    try:
        pq.write_table(to_table(rows), temporary, compression="zstd", compression_level=1)
        return name_by_content(temporary, folder, stem)
    finally:
        temporary.unlink(missing_ok=True)


def name_by_content(temporary: Path, folder: Path, stem: str) -> Path:
    """Publish a finished temporary file under the name that holds its hash."""
    target = folder / f"{stem}.{content_hash(temporary)}.parquet"
    atomic_file.publish(temporary, target)
    return target


def is_intact(path: Path) -> bool:
    """Whether a segment holds the bytes it was named for."""
    return path.stem.rpartition(".")[2] == content_hash(path)


def listed(folder: Path) -> list[Path]:
    """Whatever is named as Parquet: what somebody renamed is damaged, and not passed over in silence."""
    return sorted(folder.glob("*.parquet"))
