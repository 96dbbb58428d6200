"""Memo rows for store tests."""

from typing import Any

import xxhash

from batchrun.records import ErrorType, FinishReason, MemoStatus, Summary


def key(number: int) -> bytes:
    return xxhash.xxh3_128_digest(f"document {number}".encode())


def ok(number: int, summary: str | None = None, **changes: Any) -> Summary:
    values: dict[str, Any] = {
        "key": key(number),
        "status": MemoStatus.OK,
        "summary": summary or f"summary {number}",
        "finish_reason": FinishReason.STOP,
        "input_tokens": 10,
        "output_tokens": 3,
        "kept_tokens": 5,
        "engine": "test",
    }
    return Summary(**values | changes)


def failed(number: int, attempts: int = 1, error_type: ErrorType = ErrorType.ENGINE_ERROR) -> Summary:
    return Summary(
        key=key(number), status=MemoStatus.FAILED, error_type=error_type, error="it failed", attempts=attempts
    )


def partial(number: int, output_tokens: int) -> Summary:
    return Summary(
        key=key(number),
        status=MemoStatus.PARTIAL,
        output_tokens=output_tokens,
        token_ids=tuple(range(output_tokens)),
    )
