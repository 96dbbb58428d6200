"""One engine with one model, measured stage by stage: `python -m benchmarks.gpu_stages ENGINE SIZE UNTIL FOLDER`.

For `benchmarks.gpu`, which gives each a process of its own and ends it when its time is over (UNTIL, in seconds
since 1970). A line of JSON is
printed after each stage, so that what was measured until then is known.
"""

import contextlib
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from batchrun import engines
from batchrun.engines.base import Engine, EngineConfig
from batchrun.engines.padded_batch import PaddedBatch
from batchrun.engines.transformers_model import load_model
from batchrun.meter import Meter
from batchrun.profile import Point, Profile, Subject
from batchrun.records import Request
from batchrun.worker.residency import Residency
from benchmarks.feed import Fed, feed
from benchmarks.random_models import SHAPES, make_folder, random_weights

WEIGHTS = {"ceiling": 0.3, "feeding": 0.25, "padding": 0.2, "residency": 0.25}
"""Of the seconds that are left: a stage gets its weight among those that are still to come."""
READING_SHARE = 0.4
"""Of the ceiling's seconds; the rest is decoding."""
FILLED = 0.7
"""Of the seconds of the feeding stage that its work takes at the ceiling; what then is not done is left."""
MEDIAN_TOKENS, SIGMA, SHORTEST = 0.2, 1.1, 16
"""Of prompts: the median as a share of the context, and the spread of the logarithm of lengths, near those of
linux-doc-6.1 (median 856, 95 % below 7,119).
"""
FEEDING_OUTPUT, PADDING_OUTPUT = 64, 16
SLICE, SHORT, LONG, PROMPT = 64, 32, 512, 128
"""Tokens of a slice, of short and of long outputs, and of their prompts, where residency is measured."""
FIFO_ROWS = (8, 32)
CLOSING_SECONDS = 4.0
LEAST_SECONDS = 2.0
"""Of a stage: with less it is left out."""
ENDLESS = 10**9


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What an engine is started with, in tokens and sequences."""

    context: int
    batched_tokens: int
    sequences: int


SCALES = {
    "vllm": Scale(context=4096, batched_tokens=16384, sequences=128),
    "transformers": Scale(
        context=4096, batched_tokens=65536, sequences=128
    ),  # padded batches read all at once
}
TOY = Scale(context=1024, batched_tokens=4096, sequences=8)


def scale_of(kind: str, size: str) -> Scale:
    return TOY if size == "toy" else SCALES[kind]


class Stages:
    """The stages of one engine, which together end at `ending` of the monotonic clock."""

    def __init__(self, kind: str, size: str, engine: Engine, config: EngineConfig, ending: float) -> None:
        self._kind = kind
        self._engine = engine
        self._config = config
        self._ending = ending
        self._scale = scale_of(kind, size)
        self._vocabulary = int(SHAPES[size]["vocab_size"])
        self._dice = random.Random(0)  # noqa: S311 - prompts, not secrets
        self._number = 0
        self._profile: Profile | None = None

    def run(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Names of stages and what they came to."""
        stages = {"ceiling": self.ceiling, "feeding": self.feeding}
        stages |= {"padding": self.padding} if self._engine.limits.pads else {}
        stages |= {"residency": self.residency}
        names = list(stages)
        for place, name in enumerate(names):
            weight = WEIGHTS[name] / sum(WEIGHTS[later] for later in names[place:])
            seconds = weight * (self._ending - time.monotonic())
            if (
                seconds > LEAST_SECONDS or name == "ceiling"
            ):  # without it there is nothing to hold the others against
                yield name, stages[name](seconds)

    def ceiling(self, seconds: float) -> dict[str, Any]:
        """Rates of reading by length and of writing by number of sequences, the largest number first."""
        meter, end = Meter(self._engine, self._vocabulary), time.monotonic() + seconds
        prefill = meter.prefill(READING_SHARE * seconds)
        number = self._scale.sequences
        decode: list[Point] = []
        while number and (not decode or time.monotonic() < end):
            decode.append((number, meter.decode_rate(number)))
            number //= 4
        decode.sort()
        subject = Subject(
            engine=self._kind, engine_version="", model="random", dtype=self._config.dtype, device="here"
        )
        self._profile = Profile(
            of=subject,
            prefill=prefill,
            decode=tuple(decode),
            max_num_batched_tokens=self._scale.batched_tokens,
        )
        return {
            "prefill_tokens_per_s": dict(prefill),
            "decode_tokens_per_s": dict(decode),
            "best_prefill": max(rate for _, rate in prefill),
            "best_decode": self._profile.best_decode_rate,
        }

    def feeding(self, seconds: float) -> dict[str, Any]:
        """The share of the ceiling that the feeder reaches with mixed lengths."""
        assert self._profile is not None, "the ceiling is measured first"
        requests, reading, least = [], 0.0, 0.0
        while least < FILLED * seconds:
            requests.append(self._request(self._mixed_length(FEEDING_OUTPUT), FEEDING_OUTPUT))
            reading += self._profile.prefill_seconds(len(requests[-1].prompt_token_ids))
            least = reading + len(requests) * FEEDING_OUTPUT / self._profile.best_decode_rate
        fed = feed(self._engine, requests, seconds=seconds)
        input_tokens = sum(len(request.prompt_token_ids) for request in requests)
        read = reading * (fed.computed_tokens + fed.cached_tokens) / input_tokens
        written = fed.output_tokens / self._profile.best_decode_rate
        return _told(fed) | {
            "documents": len(fed.completions),
            "ceiling_share": (read + written) / fed.seconds,
            "idle_share": fed.idle_seconds / fed.seconds,
        }

    def padding(self, seconds: float) -> dict[str, Any]:
        """Padded batches first come first served, against those that the engine makes of like lengths."""
        each = seconds / (len(FIFO_ROWS) + 1)
        requests = [self._request(self._mixed_length(PADDING_OUTPUT), PADDING_OUTPUT) for _ in range(2048)]
        found: dict[str, Any] = {"buckets": _told(feed(self._engine, requests, seconds=each))}
        model, _ = load_model(self._config)
        for rows in FIFO_ROWS:
            found[f"fifo_{rows}"] = _fifo(model, requests, rows, self._scale.context, each)
        fastest = max(found[f"fifo_{rows}"]["tokens_per_s"] for rows in FIFO_ROWS)
        return found | {"buckets_times_fifo": found["buckets"]["tokens_per_s"] / fastest}

    def residency(self, seconds: float) -> dict[str, Any]:
        """Short outputs among long ones, with whole outputs and with slices: short completions a second."""
        found: dict[str, Any] = {}
        for name, slice_tokens in (("whole", ENDLESS), ("slices", SLICE)):
            requests = [
                self._request(PROMPT, LONG if place % 2 else SHORT)
                for place in range(32 * self._scale.sequences)
            ]
            residency = Residency(slice_tokens=slice_tokens)
            fed = feed(self._engine, requests, seconds=seconds / 2, residency=residency)
            short = {request.request_id for request in requests if request.max_tokens == SHORT}
            ended = sum(one.request_id in short for one in fed.completions)
            found[name] = _told(fed) | {
                "short_per_s": ended / fed.seconds,
                "long_per_s": (len(fed.completions) - ended) / fed.seconds,
                "output_tokens_per_s": fed.output_tokens / fed.seconds,
            }
        return found

    def _mixed_length(self, output: int) -> int:
        longest = self._scale.context - output - 1
        length = self._dice.lognormvariate(0.0, SIGMA) * MEDIAN_TOKENS * self._scale.context
        return max(SHORTEST, min(longest, int(length)))

    def _request(self, num_tokens: int, max_tokens: int) -> Request:
        self._number += 1
        ids = range(self._vocabulary // 8, self._vocabulary)
        return Request(
            request_id=f"gpu-{self._number}",
            prompt_token_ids=self._dice.choices(ids, k=num_tokens),
            document_span=(0, num_tokens),
            max_tokens=max_tokens,
            temperature=0.0,
            top_p=1.0,
            seed=0,
        )


def _told(fed: Fed) -> dict[str, Any]:
    return {
        "seconds": fed.seconds,
        "tokens_per_s": fed.tokens_per_second,
        "padding_share": fed.padding_share,
        "cached_tokens": fed.cached_tokens,
        "num_repeated": fed.num_repeated,
        "is_complete": fed.is_complete,
    }


def _fifo(model: Any, requests: Sequence[Request], rows: int, context: int, seconds: float) -> dict[str, Any]:
    """Batches of `rows` as they come, each until its last output has ended, for about `seconds`."""
    import torch

    tokens = padded = prompts = 0
    started = time.monotonic()
    for start in range(0, len(requests), rows):
        batch = PaddedBatch(model, requests[start : start + rows], context)
        with torch.inference_mode():
            prompts += batch.num_prompt_tokens
            padded += batch.num_positions - batch.num_prompt_tokens
            tokens += batch.num_prompt_tokens
            ended = batch.prefill()
            while batch.running:
                ended += batch.decode()
        tokens += sum(len(one.token_ids) for one in ended)
        batch.release()
        if time.monotonic() - started >= seconds:
            break
    took = time.monotonic() - started
    return {
        "seconds": took,
        "tokens_per_s": tokens / took,
        "padding_share": padded / max(1, padded + prompts),
    }


def start(kind: str, size: str, folder: Path) -> tuple[Engine, EngineConfig]:
    """The engine with random weights. Raises EngineUnavailableError."""
    scale = scale_of(kind, size)
    device, best = engines.resolve_device_and_dtype(kind, "auto")
    config = EngineConfig(
        kind=kind,
        dtype=best if device == "cuda" else "float32",
        device=device,
        model=make_folder(size, folder),
        max_model_len=scale.context,
        max_num_batched_tokens=scale.batched_tokens,
        max_num_seqs=scale.sequences,
        options={"load_format": "dummy"} if kind == "vllm" else {},
    )
    return engines.start(config), config


def main() -> None:
    kind, size, until, folder = sys.argv[1], sys.argv[2], float(sys.argv[3]), Path(sys.argv[4])
    started = time.monotonic()
    ending = started + until - time.time() - CLOSING_SECONDS
    say = partial(_say, kind, size)
    device, _ = engines.resolve_device_and_dtype(kind, "auto")
    with random_weights(device) if kind == "transformers" else contextlib.nullcontext():
        engine, config = start(kind, size, folder)
        said = {"seconds": time.monotonic() - started, "engine": engine.label}
        say("loading", said | {"kv_tokens": engine.limits.kv_tokens})
        for stage, found in Stages(kind, size, engine, config, ending).run():
            say(stage, found)
        engine.close()


def _say(kind: str, size: str, stage: str, found: dict[str, Any]) -> None:
    print(json.dumps({"engine": kind, "model": size, "stage": stage, "found": found}), flush=True)


if __name__ == "__main__":
    main()
