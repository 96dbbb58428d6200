"""Jobs on the simulator: the feeder and the lead engine on a clock of its own, in one thread."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from batchrun.engines.base import EngineConfig
from batchrun.engines.lead import LeadEngine
from batchrun.engines.simulator import SimulatedCounts
from batchrun.records import Completion, Request
from batchrun.worker.driver import Driver
from batchrun.worker.feeder import Feeder, FeedingSettings
from batchrun.worker.residency import Residency, Slice
from batchrun.worker.tally import FeedingTally

NO_SLICES = Residency(slice_tokens=1 << 30, max_share=1.0)


@dataclass(kw_only=True)
class Simulation:
    """What a simulated job came to; `ended` says when each request was whole, in seconds."""

    counts: SimulatedCounts
    tally: FeedingTally = field(default_factory=FeedingTally)
    outputs: dict[str, Completion] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)


def make_engine(**options: Any) -> LeadEngine:
    """A 1B-class model on a large GPU, roughly: 40,000 prefill tokens/s, 6,000 decode tokens/s."""
    rates = {"prefill_tokens_per_s": 40_000.0, "decode_tokens_per_s": 6_000.0, "decode_half_batch": 64.0}
    return LeadEngine(
        EngineConfig(
            kind="lead",
            dtype="none",
            device="cpu",
            model=Path("unused"),
            max_model_len=options.pop("max_model_len", 8192),
            max_num_seqs=options.pop("max_num_seqs", 256),
            max_num_batched_tokens=options.pop("max_num_batched_tokens", 8192),
            options=rates | {"clock": "virtual"} | options,
        )
    )


def make_requests(
    number: int, seed: int, *, median: float, sigma: float, max_tokens: int, max_input: int = 7000
) -> list[Request]:
    """Prompts of random tokens after an instruction of 40; their lengths are lognormal."""
    tokens = random.Random(seed)  # noqa: S311 - prompts, not secrets
    instruction = [tokens.randrange(40_000) for _ in range(40)]
    lengths = [min(max_input, max(30, int(tokens.lognormvariate(0, sigma) * median))) for _ in range(number)]
    return [
        make_request(f"{seed}-{n}", instruction, tokens.choices(range(40_000), k=length), max_tokens)
        for n, length in enumerate(lengths)
    ]


def make_request(name: str, before: Sequence[int], document: Sequence[int], max_tokens: int) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=[*before, *document],
        document_span=(len(before), len(before) + len(document)),
        max_tokens=max_tokens,
        temperature=0.0,
        top_p=1.0,
        seed=0,
    )


def mixed(seed: int) -> list[Request]:
    """Four short outputs, of 40 tokens, to a long one, of 1,500; shuffled. An output is as long as its document."""
    tokens = random.Random(seed)  # noqa: S311 - prompts, not secrets
    kinds = [("short", 40)] * 600 + [("long", 1500)] * 150
    tokens.shuffle(kinds)
    return [
        make_request(f"{kind} {n}", [1] * 40, tokens.choices(range(40_000), k=length), 2048)
        for n, (kind, length) in enumerate(kinds)
    ]


def run_fed(
    engine: LeadEngine,
    requests: Sequence[Request],
    residency: Residency = NO_SLICES,
    *,
    at_once: int = 512,
    lag: int = 0,
) -> Simulation:
    """As the worker feeds an engine: `at_once` requests, which come when they were asked for `lag` times in vain."""
    asked = 0
    todo = deque(requests)
    feeder = Feeder(engine.limits, FeedingSettings(edges=(1024, 8192), residency=residency), lambda *_: 0)
    simulation = Simulation(counts=simulated(engine))

    def next_requests(_: bool) -> Sequence[Request] | None:
        nonlocal asked
        if not todo and not engine.has_unfinished() and not feeder.num_further:
            return None
        asked += 1
        if asked <= lag:
            return []
        asked = 0
        return [todo.popleft() for _ in range(min(at_once, len(todo)))]

    driver = Driver(engine, feeder, next_requests, _keep(simulation), Event())
    driver.run(is_more=lambda: bool(todo))
    simulation.tally = driver.tally
    return simulation


def run_naively(engine: LeadEngine, requests: Sequence[Request]) -> Simulation:
    """All at once, as `LLM.generate` does."""
    simulation = Simulation(counts=simulated(engine))
    for request in requests:
        engine.add(request)
    while engine.has_unfinished():
        for completion in engine.step():
            simulation.outputs[completion.request_id] = completion
            simulation.ended[completion.request_id] = engine.clock()
    return simulation


def quarters(simulation: Simulation) -> list[float]:
    """When each quarter of the short outputs was done, in seconds."""
    ended = sorted(moment for name, moment in simulation.ended.items() if name.startswith("short"))
    return [ended[len(ended) * quarter // 4 - 1] for quarter in (1, 2, 3, 4)]


def simulated(engine: LeadEngine) -> SimulatedCounts:
    assert engine.simulator is not None, "rates make it a simulator"
    return engine.simulator.counts


def _keep(simulation: Simulation) -> Callable[[list[Slice]], None]:
    def keep(slices: list[Slice]) -> None:
        for one in slices:
            if one.is_last:
                simulation.outputs[one.output.request_id] = one.output
                simulation.ended[one.output.request_id] = simulation.counts.seconds

    return keep
