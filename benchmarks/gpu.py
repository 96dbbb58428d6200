"""What batchrun does on this GPU, in eight minutes: `python -m benchmarks.gpu`.

For whichever of vLLM and transformers is installed, with models of the shapes of Llama 3.2 1B and Llama 3.1 8B and
random weights; nothing is downloaded. Each engine with each model is a process of its own that gets an equal part
of the time left, its loading in it, and is ended when that is over: what it had measured by then counts.

- *ceiling*: reading by length of prompt, writing by number of sequences;
- *feeding*: the share of that which batchrun's feeder reaches with prompts of mixed lengths;
- *padding* (transformers): padded batches first come first served against batches of like lengths;
- *residency*: short outputs among long ones, short completions a second with whole outputs and with slices.

The last line of standard output is one JSON object with all of it, before it stands a table. `--toy` takes a model
of two layers, for a machine without a GPU.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from batchrun.machine import device_name
from benchmarks.comparison import table

CHECKOUT = Path(__file__).parents[1]
SECONDS = 460.0
"""Of all, under eight minutes."""
TOY_SECONDS = 100.0
GRACE = 5.0
"""Beyond its part, before a process is ended."""
HEADER = (
    "model",
    "engine",
    "loading, s",
    "reading, tokens/s",
    "writing, tokens/s",
    "share reached",
    "FIFO of 8 / 32, tokens/s (padding)",
    "buckets, tokens/s (padding)",
    "short/s, whole → slices",
)
Found = dict[str, Any]


def main() -> None:
    asked = arguments()
    ending = time.monotonic() + asked.seconds
    sizes = ["toy"] if asked.toy else asked.models
    pairs = [(kind, size) for size in sizes for kind in asked.engines]
    found: dict[tuple[str, str], Found] = {}
    with TemporaryDirectory(prefix="gpu-") as folder:
        for place, (kind, size) in enumerate(pairs):
            seconds = (ending - time.monotonic()) / (len(pairs) - place) - GRACE
            say(f"{kind} with {size}: {seconds:.0f} s")
            found[kind, size] = dict(block(kind, size, seconds, Path(folder) / f"{kind}-{size}"))
    print(table(HEADER, [row(kind, size, stages) for (kind, size), stages in found.items()]))
    print(json.dumps(document(found)), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="batchrun on this GPU: benchmarks/gpu.py says more.")
    installed = [kind for kind in ("transformers", "vllm") if find_spec(kind)]
    parser.add_argument("--engines", type=lambda given: given.split(","), default=installed, metavar="A,B")
    parser.add_argument("--models", type=lambda given: given.split(","), default=["1B", "8B"], metavar="A,B")
    parser.add_argument("--toy", action="store_true", help="a model of two layers, on a CPU too")
    parser.add_argument(
        "--seconds", type=float, help=f"of all; {SECONDS:.0f}, and {TOY_SECONDS:.0f} for a toy"
    )
    asked = parser.parse_args()
    asked.seconds = asked.seconds or (TOY_SECONDS if asked.toy else SECONDS)
    if not asked.engines:
        parser.error("neither vLLM nor transformers is installed")
    return asked


def block(kind: str, size: str, seconds: float, folder: Path) -> Iterator[tuple[str, Found]]:
    """The stages that one engine with one model came to in `seconds`, and `error` where it failed."""
    paths = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    log = folder.with_suffix(".log")
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.gpu_stages",
                kind,
                size,
                str(time.time() + seconds),
                str(folder),
            ],
            stdout=subprocess.PIPE,
            stderr=stream,
            env=os.environ | {"PYTHONPATH": paths},
            start_new_session=True,
        )
        try:
            out, _ = process.communicate(timeout=seconds + GRACE)
        except subprocess.TimeoutExpired:
            say(f"{kind} with {size}: its time is over")
            out = end(process)
    for line in out.decode(errors="replace").splitlines():
        with suppress(json.JSONDecodeError, KeyError, TypeError):
            said = json.loads(line)
            yield said["stage"], said["found"]
    if process.returncode:
        yield "error", {"code": process.returncode, "said": log.read_text(errors="replace")[-1500:]}


def end(process: "subprocess.Popen[bytes]") -> bytes:
    """What it printed, after it and the engine's processes are ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    out, _ = process.communicate()
    return out


def row(kind: str, size: str, stages: dict[str, Found]) -> tuple[str, ...]:
    """A line of the table; what was not measured is empty."""
    ceiling, padding, residency = (stages.get(name, {}) for name in ("ceiling", "padding", "residency"))
    fifo = [rate(padding[name]) for name in padding if name.startswith("fifo_")]
    slots = [f"{residency[name]['short_per_s']:.2f}" for name in ("whole", "slices") if name in residency]
    return (
        size,
        stages.get("loading", {}).get("engine", kind),
        number(stages.get("loading", {}).get("seconds"), ".0f"),
        number(ceiling.get("best_prefill"), ",.0f"),
        number(ceiling.get("best_decode"), ",.0f"),
        number(stages.get("feeding", {}).get("ceiling_share"), ".2f"),
        " / ".join(fifo),
        rate(padding["buckets"]) if "buckets" in padding else "",
        " → ".join(slots),
    )


def rate(found: Found) -> str:
    return f"{found['tokens_per_s']:,.0f} ({found['padding_share']:.2f})"


def number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def document(found: dict[tuple[str, str], Found]) -> Found:
    """All that was measured, with the card's name."""
    return {
        "card": device_name("cuda" if Path("/dev/nvidiactl").exists() else "cpu"),
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        "python": platform.python_version(),
        "blocks": [
            {"engine": kind, "model": size, "stages": stages} for (kind, size), stages in found.items()
        ],
    }


def say(what: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
