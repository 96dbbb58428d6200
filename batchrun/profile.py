"""A profile: how fast an engine reads and writes on a machine, measured by `batchrun calibrate`.

With it time is foretold before a run, and a run is held against what the same engine reaches with nothing but
one kind of work (its ceiling). Lengths and counts are in tokens and sequences, rates in tokens a second.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import xxhash
from msgspec import Struct

from batchrun import atomic_file

VERSION = 1
"""Of the file; another one is measured in another way and is not believed."""
SPEEDUP_WORTH_SAYING = 1.02
"""From which another `max_num_batched_tokens` is recommended: below, two measurements differ as much."""

Point = tuple[int, float]


class Subject(Struct, frozen=True, kw_only=True):
    """What was measured. `model` is its content id, `device` the name of the CPU or GPU, `options` are
    `[engine.options]` as written.
    """

    engine: str
    engine_version: str
    model: str
    dtype: str
    device: str
    speculation: str = "off"
    options: dict[str, Any] = {}

    @property
    def file_name(self) -> str:
        """Of its profile: `<engine>-<model8>-<dtype>-<device>.json`; another version or other options replace it."""
        model8 = xxhash.xxh3_64_hexdigest(self.model.encode())[:8]
        device = re.sub(r"[^a-z0-9]+", "-", self.device.lower()).strip("-") or "unnamed"
        mode = [] if self.speculation == "off" else [self.speculation]
        return "-".join([self.engine, model8, self.dtype, device, *mode]) + ".json"


class Profile(Struct, frozen=True, kw_only=True):
    """Points rise in their first number, and there is at least one of `prefill` and of `decode`.

    `prefill`: (input tokens of every prompt, input tokens/s), outputs of one token.
    `decode`: (sequences running at once, output tokens/s over all of them), short prompts.
    `batched_tokens`: (max_num_batched_tokens, input tokens/s) of those tried; `max_num_batched_tokens` is the
    best of them. `prefill` and `decode` were measured with `measured_with`, the spec's own value then.
    """

    of: Subject
    prefill: tuple[Point, ...]
    decode: tuple[Point, ...]
    max_num_batched_tokens: int
    batched_tokens: tuple[Point, ...] = ()
    measured_with: int | None = None
    calibrated_at: str = ""
    version: int = VERSION

    def __post_init__(self) -> None:
        for points in (self.prefill, self.decode):
            numbers = [number for number, _ in points]
            if not points or numbers != sorted(set(numbers)) or numbers[0] < 1:
                raise ValueError("points must rise, from 1 on, and there must be one")
            if any(not (math.isfinite(rate) and rate > 0) for _, rate in points):
                raise ValueError("rates must be positive")

    def prefill_rate(self, input_tokens: float) -> float:
        """Input tokens/s of prompts of this length: linear in the logarithm of the length between the points
        measured, that of the nearest outside.
        """
        return _interpolated(self.prefill, input_tokens)

    def decode_rate(self, running: float) -> float:
        """Output tokens/s over all of this many running sequences; between the points as in `prefill_rate`."""
        return _interpolated(self.decode, running)

    def with_batched_tokens(self, value: int) -> "Profile":
        """For another `max_num_batched_tokens`: where its rate of reading was measured, too, all are scaled by it."""
        tried = dict(self.batched_tokens)
        if self.measured_with is None or value not in tried or self.measured_with not in tried:
            return self
        factor = tried[value] / tried[self.measured_with]
        prefill = tuple((length, rate * factor) for length, rate in self.prefill)
        return msgspec.structs.replace(self, prefill=prefill, measured_with=value)

    def better_batched_tokens(self, value: int) -> int | None:
        """The best `max_num_batched_tokens`, where both rates of reading are known and `value` is slower by what is
        worth saying.
        """
        tried, best = dict(self.batched_tokens), self.max_num_batched_tokens
        is_known = value in tried and best in tried
        return best if is_known and tried[best] > SPEEDUP_WORTH_SAYING * tried[value] else None

    @property
    def best_decode_rate(self) -> float:
        """That of the number of sequences at which most tokens a second came out."""
        return max(rate for _, rate in self.decode)

    def prefill_seconds(self, input_tokens: float) -> float:
        """To read one prompt of this length among others like it."""
        return input_tokens / self.prefill_rate(input_tokens)

    def ceiling_seconds(self, inputs: Iterable[tuple[float, float]], output_tokens: float) -> float:
        """The least time for `inputs`, pairs of (number of prompts, tokens of each), and `output_tokens` in all.

        input tokens / prefill rate at their lengths + output tokens / best decode rate: reading and writing
        one after the other, each at its best. An engine that does both in one step can be faster than that.
        """
        reading = sum(number * self.prefill_seconds(tokens) for number, tokens in inputs if tokens)
        return reading + output_tokens / self.best_decode_rate

    def ceiling_share(
        self, inputs: Iterable[tuple[float, float]], output_tokens: float, seconds: float
    ) -> float | None:
        """The share of the ceiling that was reached in `seconds`: `ceiling_seconds` / `seconds`."""
        return self.ceiling_seconds(inputs, output_tokens) / seconds if seconds > 0 else None


def write_profile(folder: Path, profile: Profile) -> Path:
    """Make the profile durable in `folder`, in place of one of the same engine, model and device.

    Raises OSError.
    """
    path = folder / profile.of.file_name
    atomic_file.make_folder(folder)
    atomic_file.write_bytes(path, msgspec.json.format(msgspec.json.encode(profile)), "calibrate")
    return path


def read_profile(folder: Path, of: Subject, note: Callable[[str], None]) -> Profile | None:
    """The profile of `of`; None where there is none, and, with a note that says why, where it is not believed:
    damaged, of another version of its form or of the engine, or measured with other engine options.
    """
    path = folder / of.file_name
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        note(f"the profile {path} can not be read: {error}")
        return None
    problem = _problem(data, of)
    if problem is not None:
        note(f"the profile {path} is ignored: it {problem}; measure again: batchrun calibrate")
        return None
    return msgspec.json.decode(data, type=Profile)


class _Version(Struct):
    version: int


def _problem(data: bytes, of: Subject) -> str | None:
    try:
        version = msgspec.json.decode(data, type=_Version).version
        if version != VERSION:
            return f"has version {version} of its form, this batchrun reads {VERSION}"
        found = msgspec.json.decode(data, type=Profile).of
    except msgspec.MsgspecError as error:
        return f"is damaged ({error})"
    if found.engine_version != of.engine_version:
        return f"is of {of.engine} {found.engine_version}, and {of.engine_version} is installed"
    if found.options != of.options:
        return "was measured with other [engine.options]"
    return None if found == of else f"is of {found.model} on {found.device}"


def _interpolated(points: Sequence[Point], number: float) -> float:
    place = bisect_left([each for each, _ in points], number)
    if place == 0:
        return points[0][1]
    if place == len(points):
        return points[-1][1]
    (lower, below), (upper, above) = points[place - 1], points[place]
    share = math.log(number / lower) / math.log(upper / lower)
    return below + share * (above - below)
