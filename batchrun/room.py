"""Whether the disks have room for what a run will write."""

import shutil
from pathlib import Path

from batchrun.errors import StorageError

BYTES_PER_TOKEN, BYTES_PER_ROW = 4, 256
"""Of a summary and of a row without it, uncompressed: files are smaller, and the check errs on the side of room."""


def require_room(home: Path, output: Path, *, to_run: int, num_rows: int, max_tokens: int) -> None:
    """Raise StorageError where the workspace has no room for the summaries to come, or the output for its rows."""
    row = BYTES_PER_ROW + BYTES_PER_TOKEN * max_tokens
    needed: dict[int, tuple[Path, int]] = {}
    for folder, num_bytes in ((home, to_run * row), (output.parent, num_rows * row)):
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        device = existing.stat().st_dev
        needed[device] = (existing, needed.get(device, (existing, 0))[1] + num_bytes)
    for folder, num_bytes in needed.values():
        free = shutil.disk_usage(folder).free
        if free < num_bytes:
            raise StorageError(
                f"{folder} has {free / 2**20:,.0f} MiB free, and up to {num_bytes / 2**20:,.0f} MiB may be written",
                "Make room, or name a workspace (--home) and an output (-o) elsewhere; then submit again: what is "
                "finished is kept.",
            )
