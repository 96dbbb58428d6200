"""Nights on the simulator, each held up by one thing that is known, submitted as any job is."""

import dataclasses
import json
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from batchrun import watch
from batchrun.engines.base import EngineSnapshot
from batchrun.engines.lead import LeadEngine
from batchrun.insight.facts import RunFacts, find_run
from batchrun.planning.work import Work
from batchrun.records import Completion, Document, Summary
from batchrun.telemetry import timeline
from batchrun.worker.admission import Admission
from batchrun.worker.harvest import Harvest
from batchrun.workspace import Workspace
from tests.commands import Bench

WORDS = ("river", "stone", "engine", "letter", "cloud", "market", "garden", "winter", "bridge", "paper")
TICK_SECONDS, EVERY_SECONDS, STEP_SECONDS = 0.003, 0.03, 0.0005
"""A night of virtual minutes passes in a second or two: it is looked at as often as a real one."""
READS, WRITES = 20_000.0, 2_000.0
"""Tokens a second of the simulator; 16 sequences at once reach half of the latter."""


def lengths(number: int, median: int, sigma: float, most: int = 40_000) -> list[int]:
    """Lognormal, the same at every call."""
    rng = random.Random(3)  # noqa: S311 - lengths, not secrets
    return [min(most, max(20, int(median * rng.lognormvariate(0, sigma)))) for _ in range(number)]


def documents(words: Sequence[int]) -> list[str]:
    """Of so many words each, about a token a word."""
    rng = random.Random(1)  # noqa: S311 - texts, not secrets
    return [f"{n} " + " ".join(rng.choices(WORDS, k=length)) for n, length in enumerate(words)]


class Scene:
    """A bench whose model reads 64K tokens."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench, self.patch = bench, monkeypatch
        self._model = _wide_model(bench.model, bench.home / "wide")
        self._seeds = iter(range(10))
        monkeypatch.setattr(watch, "TICK_SECONDS", TICK_SECONDS)
        monkeypatch.setattr(timeline, "EVERY_SECONDS", EVERY_SECONDS)
        monkeypatch.setattr(LeadEngine, "step", _in_no_hurry)

    def write_spec(self, max_tokens: int, slice_tokens: int = 4096, **changes: Any) -> None:
        """Capitals are keys of [engine], the others its options."""
        engine = {"kind": "lead", "max_num_seqs": 64, "max_num_batched_tokens": 4096, "max_model_len": 65536}
        options = {
            "prefill_tokens_per_s": READS,
            "decode_tokens_per_s": WRITES,
            "decode_half_batch": 16.0,
            "clock": "virtual",
            "prefix_caching": False,
        }
        for name, value in changes.items():
            (engine if name in engine else options)[name] = value
        tables: dict[str, dict[str, Any]] = {
            "output": {"max_tokens": max_tokens},
            "residency": {"slice_tokens": slice_tokens},
            "engine": engine,
            "engine.options": options,
        }
        lines = [f'model = "{self._model}"']
        for table, values in tables.items():
            lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
        (self.bench.home / "jobs" / "summarize.toml").write_text("\n".join(lines) + "\n")

    def submit(self, words: Sequence[int], *arguments: str) -> RunFacts:
        """All of it is computed, also where the same texts were before."""
        corpus = self.bench.corpus(documents(words))
        done = self.bench.submit(corpus, *arguments, "--seed", str(next(self._seeds)))
        assert 0 == done.code, done.err
        return find_run(Workspace(home=self.bench.home), done.json["run_id"])


def _in_no_hurry(
    engine: LeadEngine, step: Callable[[LeadEngine], list[Completion]] = LeadEngine.step
) -> list[Completion]:
    time.sleep(STEP_SECONDS)
    return step(engine)


def _wide_model(model: Path, folder: Path) -> Path:
    folder.mkdir()
    for path in model.iterdir():
        if path.suffix in (".json", ".jinja"):
            shutil.copy(path, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 65536}))
    return folder


def write_balanced(scene: Scene) -> None:
    scene.write_spec(200, output_tokens=80.0)


def balanced(scene: Scene) -> RunFacts:
    """Reads and writes for about as long, of documents that are much alike, with nothing in the way."""
    write_balanced(scene)
    return scene.submit(lengths(600, 700, 0.5))


def prefill(scene: Scene) -> RunFacts:
    """Long inputs, short outputs."""
    scene.write_spec(30)
    return scene.submit(lengths(400, 2500, 0.8))


def decode(scene: Scene) -> RunFacts:
    """Short inputs, a few longer, and long outputs; all the sequences that the engine runs write together."""
    scene.write_spec(200, output_tokens=150.0)
    return scene.submit([*lengths(450, 80, 0.5), *[1200] * 30])


def small_batch(scene: Scene) -> RunFacts:
    """The same, of which the engine runs four at once, where 64 would take hardly longer for a token each."""
    scene.write_spec(200, output_tokens=150.0, max_num_seqs=4, decode_half_batch=64.0)
    return scene.submit(lengths(120, 80, 0.5))


def interference(scene: Scene, max_num_batched_tokens: int = 16384) -> RunFacts:
    """One document in fourteen has 16,000 tokens, which are read in one step while the others write."""
    scene.write_spec(200, output_tokens=120.0, max_num_batched_tokens=max_num_batched_tokens)
    words = lengths(400, 80, 0.5)
    words[::14] = [16_000] * len(words[::14])
    random.Random(2).shuffle(words)  # noqa: S311 - an order, not a secret
    return scene.submit(words, "--prefer", "order")


def kv_cache(scene: Scene, max_num_seqs: int = 64) -> RunFacts:
    """The engine is given all that it has places for, as if outputs took nothing of its small KV cache."""
    scene.patch.setattr(Admission, "_peak", lambda _: 0.0)
    scene.write_spec(
        400, output_tokens=150.0, kv_tokens=16_000, prefill_tokens_per_s=READS / 5, max_num_seqs=max_num_seqs
    )
    return scene.submit(lengths(300, 250, 0.3))


def feeding(scene: Scene) -> RunFacts:
    """Documents come three at a time, and later than the engine would have them."""
    as_read = Work.documents

    def slowly(work: Work, **settings: Any) -> Iterator[list[Document]]:
        for batch in as_read(work, **settings):
            for start in range(0, len(batch), 3):
                time.sleep(0.03)
                yield batch[start : start + 3]

    scene.patch.setattr(Work, "documents", slowly)
    scene.write_spec(100, output_tokens=60.0)
    return scene.submit(lengths(150, 500, 0.5))


def kept_free(scene: Scene, max_tokens: int = 4000) -> RunFacts:
    """The KV cache is kept for outputs of 4,000 tokens, which end after 300: nine run where 64 could."""
    scene.write_spec(
        max_tokens, output_tokens=300.0, output_sigma=0.2, kv_tokens=40_000, decode_tokens_per_s=WRITES / 10
    )
    return scene.submit(lengths(60, 100, 0.3))


def padding(scene: Scene) -> RunFacts:
    """For each prompt token the engine computes another that is none."""
    as_it_is = LeadEngine.snapshot

    def padded(engine: LeadEngine) -> EngineSnapshot:
        snapshot = as_it_is(engine)
        return dataclasses.replace(snapshot, padded_tokens=snapshot.computed_tokens)

    scene.patch.setattr(LeadEngine, "snapshot", padded)
    scene.write_spec(200, output_tokens=80.0, prefill_tokens_per_s=READS / 2)
    return scene.submit(lengths(400, 700, 0.5))


def idle(scene: Scene) -> RunFacts:
    """Whoever takes the outputs of a step is slower than the step; the engine waits for it, by the real clock."""
    as_it_is = Harvest.answers

    def slowly(harvest: Harvest, *arguments: Any) -> list[Summary]:
        time.sleep(0.02)
        return as_it_is(harvest, *arguments)

    scene.patch.setattr(Harvest, "answers", slowly)
    scene.write_spec(
        60,
        output_tokens=30.0,
        clock="real",
        max_num_seqs=16,
        prefill_tokens_per_s=100 * READS,
        decode_tokens_per_s=10 * WRITES,
    )
    return scene.submit(lengths(200, 100, 0.5))


def tail(scene: Scene, prefer: str = "order") -> RunFacts:
    """The last document of the input has the longest output by far, which is all that runs for half of the time."""
    scene.write_spec(4000)
    return scene.submit([*[max(20, length) for length in lengths(400, 60, 0.4)], 1500], "--prefer", prefer)


def recomputation(scene: Scene, slice_tokens: int = 64) -> RunFacts:
    """Outputs of 600 tokens take turns after each 64, and nothing of them is left in the cache."""
    scene.write_spec(
        1500,
        slice_tokens,
        output_tokens=500.0,
        max_num_seqs=16,
        kv_tokens=40_000,
        prefill_tokens_per_s=READS / 3,
    )
    return scene.submit(lengths(100, 250, 0.3))


SCENES: dict[Callable[..., RunFacts], str | None] = {
    balanced: None,
    prefill: "prefill",
    decode: "decode",
    small_batch: "decode",
    interference: "interference",
    kv_cache: "kv cache",
    feeding: "feeding",
    kept_free: "feeding",
    padding: "padding",
    idle: "idle",
    tail: "tail",
    recomputation: "recomputation",
}
"""And what the diagnosis names, alone."""
