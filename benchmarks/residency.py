"""What slices of outputs cost, and what they give: `python -m benchmarks.residency [--vllm] [--rounds 3]`.

On the simulator: 600 short outputs of 40 tokens and 150 long ones of 1,500, shuffled, with 32 slots; when the short
ones and when all are done, and how many tokens of prompts and outputs are computed again for further slices.

With `--vllm` beside it, on the machine's own engine: READMEs with outputs of 128 tokens, whole and in slices. vLLM's
blocks on a CPU have 128 tokens, so that a slice computes its last block again; on a GPU they have 16. Arms take turns;
every turn's prompts begin with a token of their own, so that none finds another's in the prefix cache.
"""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from batchrun.engines.base import Engine, EngineConfig
from batchrun.engines.vllm import VllmEngine
from batchrun.records import Request
from batchrun.worker.residency import Residency
from benchmarks.arms import Bench
from benchmarks.comparison import spread, table
from benchmarks.feed import Fed, feed
from benchmarks.work import make_work
from tests.materials.smollm2 import FOLDER as SMOLLM2
from tests.materials.smollm2 import make_smollm2
from tests.worker.simulation import NO_SLICES, make_engine, mixed, quarters, run_fed

SIMULATED = (None, 1024, 512, 256, 128, 64)
"""Tokens of a slice; None: outputs are whole."""
REAL = (None, 64, 32)
DOCUMENTS, LONGEST, OUTPUT = 12, 600, 128
CONTEXT = 1024
ENDLESS_SECONDS = 3600.0


def residency(slice_tokens: int | None) -> Residency:
    return NO_SLICES if slice_tokens is None else Residency(slice_tokens=slice_tokens)


def simulated_rows() -> Iterator[tuple[str, ...]]:
    """The table of the simulator, a line for each length of a slice."""
    requests, least = mixed(1), 0
    for size in SIMULATED:
        engine = make_engine(max_num_seqs=32, decode_half_batch=16.0)
        done = run_fed(engine, requests, residency(size))
        least = least or done.counts.computed_tokens
        yield (
            name_of(size),
            f"{done.tally.num_slices:,}",
            f"{quarters(done)[-1]:.0f}",
            f"{max(done.ended.values()):.0f}",
            f"{done.counts.computed_tokens / least - 1:.1%}",
        )


def name_of(slice_tokens: int | None) -> str:
    return "whole outputs" if slice_tokens is None else f"slices of {slice_tokens:,}"


def start_vllm(model: Path) -> Engine:
    return VllmEngine(
        EngineConfig(
            kind="vllm",
            model=model,
            device="cpu",
            dtype="float32",
            max_model_len=CONTEXT,
            max_num_batched_tokens=2048,
            max_num_seqs=DOCUMENTS,
        )
    )


def prompts(model: Path) -> list[list[int]]:
    """Of READMEs, as batchrun makes them."""
    with TemporaryDirectory(prefix="residency-") as folder:
        bench = Bench(folder=Path(folder), model=model, longest=LONGEST)
        job = bench.job()
        work = make_work("documents", job, number=DOCUMENTS, longest=LONGEST)
        return list(bench.assignment(work, bench.write_corpus(work), job).prompts)


def turn(engine: Engine, texts: list[list[int]], size: int | None, mark: int) -> Fed:
    requests = [
        Request(
            request_id=f"{number:032x}",
            prompt_token_ids=[mark, *text],
            document_span=(1, 1 + len(text)),
            max_tokens=OUTPUT,
            temperature=0.0,
            top_p=1.0,
            seed=0,
        )
        for number, text in enumerate(texts)
    ]
    return feed(engine, requests, seconds=ENDLESS_SECONDS, residency=residency(size))


def real_rows(model: Path, rounds: int) -> Iterator[tuple[str, ...]]:
    """The table of vLLM: seconds, ratios within rounds, and tokens computed again."""
    texts = prompts(model)
    input_tokens = sum(len(text) + 1 for text in texts)
    marks = iter(random.Random(0).sample(range(1000, 40_000), len(REAL) * rounds))  # noqa: S311
    engine = start_vllm(model)
    arms: dict[int | None, list[Fed]] = {size: [] for size in REAL}
    for number in range(rounds):
        for place in range(len(REAL)):
            size = REAL[(place + number) % len(REAL)]
            arms[size].append(turn(engine, texts, size, next(marks)))
    engine.close()
    for size, fed in arms.items():
        ratios = [one.seconds / whole.seconds for one, whole in zip(fed, arms[None], strict=True)]
        yield (
            name_of(size),
            spread([one.seconds for one in fed]),
            f"{median(ratios):.2f}",
            f"{median(one.computed_tokens - input_tokens for one in fed):,.0f}",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vllm", action="store_true", help="on the machine's own engine, too")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    simulated = ("simulated", "slices", "short ones done, s", "all done, s", "computed again")
    print(table(simulated, list(simulated_rows())), flush=True)
    if asked.vllm:
        real = ("vLLM", "s", "times whole outputs", "tokens computed again")
        print(f"\n{table(real, list(real_rows(make_smollm2(SMOLLM2), asked.rounds)))}", flush=True)


if __name__ == "__main__":
    main()
