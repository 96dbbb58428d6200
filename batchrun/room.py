"""Whether the disks have room for what a run will write."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from batchrun.errors import StorageError

BYTES_PER_TOKEN, BYTES_PER_ROW = 4, 256
"""Of a summary and of a row without it, uncompressed: files are smaller, and the check errs on the side of room."""
EXPECTED_TOKENS = 128
"""Of an output while none is known: most are far below their cap."""


def require_room(
    home: Path,
    output: Path | None,
    *,
    to_run: int,
    num_rows: int,
    output_tokens: Sequence[int],
    max_tokens: int,
) -> None:
    """Raise StorageError where the workspace has no room for the summaries to come, or the output, where there is one, for its rows.

    `output_tokens`: lengths of earlier outputs; without any they are taken for EXPECTED_TOKENS, at most `max_tokens`.
    """
    known = sum(output_tokens) / len(output_tokens) if output_tokens else min(EXPECTED_TOKENS, max_tokens)
    row = round(BYTES_PER_ROW + BYTES_PER_TOKEN * known)
    needed: dict[int, tuple[Path, int]] = {}
    written = [(home, to_run * row)] + ([(output.parent, num_rows * row)] if output else [])
    for folder, num_bytes in written:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        device = existing.stat().st_dev
        needed[device] = (existing, needed.get(device, (existing, 0))[1] + num_bytes)
    for folder, num_bytes in needed.values():
        free = shutil.disk_usage(folder).free
        if free < num_bytes:
            raise StorageError(
                f"{folder} has {free / 1e6:,.3f} MB free, and some {num_bytes / 1e6:,.3f} MB are to be written",
                "Make room, or name a workspace (--home) and an output (-o) elsewhere; then submit again: what is "
                "finished is kept.",
            )
