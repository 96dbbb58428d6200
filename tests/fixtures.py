"""Values and objects that several folders of tests work with."""

import datetime as dt
import decimal
import uuid
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from batchrun.prompts.tokenizer import Tokenizer


@cache
def tokenizer_of(folder: Path) -> Tokenizer:
    """The tokenizer of a model folder, loaded once: it takes a second."""
    return Tokenizer(folder)


def not_utf8(values: list[bytes], kind: pa.DataType | None = None) -> pa.Array:
    """A column of strings whose bytes nobody checked, as careless writers leave them."""
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int32)
    column = pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets), pa.py_buffer(b"".join(values)))
    return column if kind is None else column.cast(kind)


ID_COLUMNS: dict[str, pa.Array] = {
    # Ids that do not survive a way through Python or SQL; three rows each, the last one null.
    "int64 beyond 2^53": pa.array([2**53 + 1, -(2**63), None]),
    "uint64": pa.array([2**64 - 1, 0, None], pa.uint64()),
    "int8": pa.array([-128, 127, None], pa.int8()),
    "string": pa.array(["a", "", None]),
    "string that is no UTF-8": pa.concat_arrays([not_utf8([b"\xff", b"b"]), pa.array([None], pa.string())]),
    "large_string": pa.array(["a", "b", None], pa.large_string()),
    "string_view": pa.array(["a", "b", None], pa.string_view()),
    "binary": pa.array([b"\xff\x00", b"", None]),
    "uuid": pa.array([uuid.UUID(int=2**127 + 5).bytes, uuid.UUID(int=5).bytes, None], pa.uuid()),
    "fixed_size_binary": pa.array([b"\xff" * 16, b"\x00" * 16, None], pa.binary(16)),
    "decimal128": pa.array([decimal.Decimal("1.10"), decimal.Decimal("-0.01"), None], pa.decimal128(38, 2)),
    "decimal256": pa.array(
        [decimal.Decimal("9" * 60 + ".10"), decimal.Decimal(0), None], pa.decimal256(70, 2)
    ),
    "timestamp in ns of a zone": pa.array([1234567890123456789, 0, None], pa.timestamp("ns", "America/New_York")),
    "timestamp in ns": pa.array([1234567890123456789, -1, None], pa.timestamp("ns")),
    "timestamp of an unknown zone": pa.array([1, 0, None], pa.timestamp("us", "Nowhere/At_All")),
    "timestamp beyond the year 9999": pa.array([2**62, 0, None], pa.timestamp("us")),
    "date": pa.array([dt.date(2020, 2, 29), dt.date(1, 1, 1), None]),
    "date beyond the year 9999": pa.array([2**30, 0, None], pa.int32()).view(pa.date32()),
    "time in ns": pa.array([1, 2, None], pa.time64("ns")),
    "duration in ns": pa.array([1, 5, None], pa.duration("ns")),
    "bool": pa.array([True, False, None]),
    "float32": pa.array([1.5, -0.0, None], pa.float32()),
    "dictionary": pa.array(["a", "b", None]).dictionary_encode(),
    "struct": pa.array([{"a": 1, "b": {"c": ["x", None]}}, {"a": None, "b": None}, None]),
    "struct with ns": pa.array([{"t": 1}, {"t": 2}, None], pa.struct({"t": pa.timestamp("ns")})),
    "list": pa.array([[1, None], [], None]),
    "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int32())),
    "null": pa.nulls(3),
}  # fmt: skip
