"""What taking inter-token times costs: `OMP_NUM_THREADS=1 python -m benchmarks.request_times [--rounds 6]`.

The tiny Llama in vLLM, in this process. Three arms take turns in every round: no request is asked for its
inter-token times, one in `SAMPLED_EVERY`, all of them. The computation of a step varies by several percent from
one to the next, so what it took is taken out: what is compared is the rest of `step`, where vLLM makes outputs
and batchrun takes them, in processor time of this thread; and its difference is set against the whole.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from batchrun.engines.vllm import VllmEngine
from batchrun.engines.vllm_times import SAMPLED_EVERY, Times
from tests.engines.requests import make_config, make_request, run
from tests.materials.smollm2 import FOLDER as SMOLLM2
from tests.materials.smollm2 import make_smollm2
from tests.materials.tiny_llama import FOLDER, make_tiny_llama

NEVER = 10**9
ARMS = {"none": NEVER, f"1 in {SAMPLED_EVERY}": SAMPLED_EVERY, "all": 1}


class Clock:
    """Processor seconds of this thread inside a function."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.seconds = 0.0
        self._function = function

    def __call__(self) -> Any:
        started = time.thread_time()
        try:
            return self._function()
        finally:
            self.seconds += time.thread_time() - started


def measure(engine: VllmEngine, clock: Clock, every: int, num: int, max_tokens: int) -> tuple[float, float]:
    """Of one arm's turn, microseconds a token: of all, and without the core."""
    times = Times(every)
    if every == NEVER:
        times.begin("nobody")
    engine._times, clock.seconds = times, 0.0  # noqa: SLF001 - the arm
    requests = [make_request(f"r{n}", num_tokens=20, max_tokens=max_tokens) for n in range(num)]
    started = time.thread_time()
    num_tokens = sum(len(each.token_ids) for each in run(engine, requests))
    spent = time.thread_time() - started
    return 1e6 * spent / num_tokens, 1e6 * (spent - clock.seconds) / num_tokens


def compare(model: Path, rounds: int, num: int, max_tokens: int) -> None:
    engine = VllmEngine(make_config("vllm", model, max_num_seqs=num))
    clock = engine._llm.engine_core.get_output = Clock(engine._llm.engine_core.get_output)  # noqa: SLF001
    measure(engine, clock, 1, num, 8)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ARMS}
    for number in range(rounds):
        for name in list(ARMS)[:: -1 if number % 2 else 1]:
            taken[name].append(measure(engine, clock, ARMS[name], num, max_tokens))
    engine.close()
    whole = statistics.median(all_of_it for all_of_it, _ in taken["none"])
    for name, turns in taken.items():
        beside = statistics.median(one for _, one in turns)
        extra = statistics.median(
            one - other for (_, one), (_, other) in zip(turns, taken["none"], strict=True)
        )
        print(
            f"{name:>8}: {beside:6.2f} µs a token beside the core, {extra:+.2f}; of {whole:.0f} µs in all "
            f"a ratio of {1 + extra / whole:.4f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=100)
    arguments = parser.parse_args()
    model = make_tiny_llama(FOLDER, make_smollm2(SMOLLM2))
    compare(model, arguments.rounds, arguments.requests, arguments.max_tokens)


if __name__ == "__main__":
    main()
