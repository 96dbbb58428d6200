"""Damage to a segment is found, said, and costs its rows a second computation: never a wrong summary."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from batchrun.store import segments
from tests.store.rows import ok
from tests.store.test_memo import open_store

FLIPS = 200


def test_every_single_bit_flip_is_found(tmp_path: Path) -> None:
    """Of 200 single-bit flips all over a segment, 200 are found."""
    store = open_store(tmp_path)
    store.commit([ok(number) for number in range(100)])
    [path] = segments.listed(store.paths.segments)
    good = path.read_bytes()
    positions = random.Random(7).sample(range(len(good) * 8), FLIPS)  # noqa: S311 - where to break, not a secret
    found = 0
    for position in positions:
        broken = bytearray(good)
        broken[position // 8] ^= 1 << position % 8
        path.write_bytes(broken)
        found += not segments.is_intact(path)
    assert FLIPS == found


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a bit flipped": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "truncated": lambda data: data[: len(data) // 2],
    "extended": lambda data: data + b"\0",
    "emptied": lambda data: b"",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_segment_is_set_aside(damage: str, tmp_path: Path) -> None:
    """It is named, moved out of the way, and its rows are gone from the table; others stay."""
    writer = open_store(tmp_path)
    writer.commit([ok(1), ok(2)])
    writer.commit([ok(3)])
    path = segments.listed(writer.paths.segments)[0]
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    reader = open_store(tmp_path, "reader")
    assert 1 == reader.table().num_rows
    assert [path] == [found.segment for found in reader.damages]
    target = reader.damages[0].set_aside
    assert target is not None
    assert target.exists()
    assert not path.exists()
    assert str(path) in str(reader.damages[0])


def test_a_renamed_segment_is_damaged(tmp_path: Path) -> None:
    """A segment under another's name does not hold the bytes it is named for."""
    store = open_store(tmp_path)
    store.commit([ok(1)])
    store.commit([ok(2)])
    one, two = segments.listed(store.paths.segments)
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)
    assert 0 == open_store(tmp_path, "reader").table().num_rows


def test_rows_survive_the_way_through_a_file(tmp_path: Path) -> None:
    """Text of any script, control-free or not, comes back as it was; so do lists and nulls."""
    store = open_store(tmp_path)
    text = "요약 — naïve “quotes”, 𝄞\n\ttab"
    store.commit([ok(1, text, flags=("capped",), cached_tokens=4)])
    [row] = store.table().to_pylist()
    assert [text, ["capped"], None, "stop"] == [
        row[name] for name in ("summary", "flags", "error", "finish_reason")
    ]
