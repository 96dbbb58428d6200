"""Profiles: rates between the points measured, the ceiling, and which files are believed."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchrun.profile import Profile, Subject, read_profile, write_profile

OF = Subject(
    engine="vllm",
    engine_version="0.32.0",
    model="xxh3:00ff",
    dtype="float32",
    device="AMD EPYC 7B13 (2 cores)",
    options={"enforce_eager": True},
)
PROFILE = Profile(
    of=OF,
    prefill=((128, 1000.0), (512, 3000.0), (2048, 2000.0)),
    decode=((1, 100.0), (4, 300.0), (16, 800.0)),
    max_num_batched_tokens=4096,
    batched_tokens=((2048, 2900.0), (4096, 3000.0)),
    calibrated_at="2026-11-30T03:00:00.000+00:00",
)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (1, 1000.0),
        (128, 1000.0),
        (256, 2000.0),
        (512, 3000.0),
        (1024, 2500.0),
        (2048, 2000.0),
        (9999, 2000.0),
    ],
)
def test_rates_are_interpolated_in_the_logarithm(tokens: int, expected: float) -> None:
    """Half of the way from 128 to 512 is 256; outside of the points the nearest holds."""
    assert expected == pytest.approx(PROFILE.prefill_rate(tokens))


def test_the_ceiling_is_reading_and_writing_at_their_best() -> None:
    """10 prompts of 512 at 3,000/s and 2 of 256 at 2,000/s, 1,600 outputs at 800/s: 1.7067 + 0.256 + 2 s."""
    inputs = [(10, 512), (2, 256)]
    seconds = 5120 / 3000 + 512 / 2000 + 2
    assert seconds == pytest.approx(PROFILE.ceiling_seconds(inputs, 1600))
    assert 0.5 == pytest.approx(PROFILE.ceiling_share(inputs, 1600, 2 * seconds))
    assert PROFILE.ceiling_share(inputs, 1600, 0.0) is None


def test_the_decode_rate_is_that_of_all_running_sequences() -> None:
    """And the best one is that of any number measured."""
    assert [100.0, 200.0, 800.0] == pytest.approx([PROFILE.decode_rate(n) for n in (1, 2, 64)])
    fewer = msgspec.structs.replace(PROFILE, decode=((1, 100.0), (4, 300.0), (16, 250.0)))
    assert 300.0 == fewer.best_decode_rate


def test_another_token_budget_reads_at_its_own_rate() -> None:
    """Where it was tried, too: after the advice of `calibrate` was followed the ceiling is the new one."""
    profile = msgspec.structs.replace(PROFILE, measured_with=2048)
    assert 3000.0 * 3000 / 2900 == pytest.approx(profile.with_batched_tokens(4096).prefill_rate(512))
    assert profile == profile.with_batched_tokens(2048) == profile.with_batched_tokens(9999)
    assert PROFILE == PROFILE.with_batched_tokens(4096)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Under a name that tells engine, dtype and device."""
    notes: list[str] = []
    path = write_profile(tmp_path / "profiles", PROFILE)
    assert path.name.startswith("vllm-")
    assert path.name.endswith("-float32-amd-epyc-7b13-2-cores.json")
    assert PROFILE == read_profile(tmp_path / "profiles", OF, notes.append)
    assert [] == notes


def test_there_may_be_none(tmp_path: Path) -> None:
    """Then nothing is said: a profile is no must."""
    notes: list[str] = []
    assert read_profile(tmp_path / "profiles", OF, notes.append) is None
    other = msgspec.structs.replace(OF, speculation="ngram")
    write_profile(tmp_path, PROFILE)
    assert read_profile(tmp_path, other, notes.append) is None
    assert [] == notes


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[:-30], "is damaged"),
        (lambda data: b"", "is damaged"),
        (lambda data: data.replace(b'"version": 1', b'"version": 2'), "has version 2 of its form"),
        (lambda data: data.replace(b"0.32.0", b"0.31.0"), "is of vllm 0.31.0, and 0.32.0 is installed"),
        (lambda data: data.replace(b"true", b"false"), "was measured with other [engine.options]"),
        (lambda data: data.replace(b"2048", b"2"), "is damaged"),
        (lambda data: data.replace(b"3000.0", b"-1"), "is damaged"),
    ],
)
def test_what_can_not_be_believed_is_named_and_ignored(tmp_path: Path, change: Any, said: str) -> None:
    """A note with the path and what to do; no error, since time can be estimated in another way."""
    notes: list[str] = []
    path = write_profile(tmp_path, PROFILE)
    path.write_bytes(change(path.read_bytes()))
    assert read_profile(tmp_path, OF, notes.append) is None
    [note] = notes
    assert f"the profile {path} is ignored: it {said}" in note
    assert note.endswith("measure again: batchrun calibrate")
