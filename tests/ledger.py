"""`python -m tests.ledger FILE ...` is `batchrun ...`, and every call that the lead engine computes stands in FILE.

A line is in the kernel's hands before the completion is in batchrun's, so a SIGKILL loses none.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from batchrun.cli.main import run
from batchrun.engines.lead import LeadEngine
from batchrun.records import Completion, Request


def calls(path: Path) -> dict[str, int]:
    """Input tokens by request id. Raises AssertionError where a call was computed twice in the file."""
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    assert len({name for name, _ in lines}) == len(lines), "a call was computed twice in one run"
    return {name: int(tokens) for name, tokens in lines}


@contextmanager
def noting(path: Path) -> Iterator[None]:
    """Every call that a lead engine of this process computes stands in `path`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    complete = LeadEngine._completion

    def noted(engine: LeadEngine, request: Request, output: list[int], cached_tokens: int) -> Completion:
        completion = complete(engine, request, output, cached_tokens)
        os.write(descriptor, f"{completion.request_id} {completion.input_tokens}\n".encode())
        return completion

    with patch.object(LeadEngine, "_completion", noted):
        yield


def main() -> None:
    with noting(Path(sys.argv.pop(1))):
        run()


if __name__ == "__main__":
    main()
