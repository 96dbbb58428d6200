"""`python -m tests.ledger FILE ...` is `batchrun ...`, and every call that the lead engine computes stands in FILE.

A line is in the kernel's hands before the completion is in batchrun's, so a SIGKILL loses none.
"""

import os
import sys
from pathlib import Path

from batchrun.cli.main import run
from batchrun.engines.lead import LeadEngine
from batchrun.records import Completion, Request


def calls(path: Path) -> dict[str, int]:
    """Input tokens by request id. Raises AssertionError where a call was computed twice in the file."""
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    assert len({name for name, _ in lines}) == len(lines), "a call was computed twice in one run"
    return {name: int(tokens) for name, tokens in lines}


def main() -> None:
    descriptor = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    complete = LeadEngine._completion

    def noted(engine: LeadEngine, request: Request, output: list[int], cached_tokens: int) -> Completion:
        completion = complete(engine, request, output, cached_tokens)
        os.write(descriptor, f"{completion.request_id} {completion.input_tokens}\n".encode())
        return completion

    LeadEngine._completion = noted  # type: ignore[method-assign, assignment]
    run()


if __name__ == "__main__":
    main()
