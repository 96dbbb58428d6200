"""Where an output goes: what stands there, and whether it may be replaced."""

import os
from pathlib import Path
from tempfile import TemporaryFile

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from batchrun.errors import OutputError

METADATA_KEY = b"batchrun"


def is_batchrun_output(path: Path) -> bool:
    """Whether batchrun made this file; False where it is no Parquet."""
    try:
        return METADATA_KEY in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowInvalid):
        return False


def check_target(target: Path, inputs: list[Path]) -> None:
    """Raise OutputError where `target` can not be written, is an input, or is somebody else's file."""
    if target.is_dir():
        raise OutputError(f"the output {target} is a folder", "Give a file with -o.")
    if any(path.exists() and target.exists() and path.samefile(target) for path in inputs):
        raise OutputError(f"the output {target} is the corpus itself", "Give another path with -o.")
    if target.exists() and not is_batchrun_output(target):
        raise OutputError(
            f"{target} exists and is not a batchrun output; it is not overwritten",
            "Move it away, or give another path with -o.",
        )
    check_folder(target.parent)


def check_folder(folder: Path) -> None:
    """Raise OutputError where nothing can be written to the folder of an output."""
    if not folder.is_dir():
        raise OutputError(f"the folder of the output, {folder}, is not there", "Make it, or give another -o.")
    try:
        TemporaryFile(dir=folder).close()  # without a name, where the file system can: a crash leaves nothing
    except OSError as error:
        raise OutputError(
            f"the folder of the output, {folder}, can not be written: {error.strerror}", "Give another -o."
        ) from error


def check_same_corpus(target: Path, inputs: list[str]) -> None:
    """Raise OutputError where `target` holds the summaries of other inputs than these absolute paths. One that
    was moved with its output is the same; of an output that does not say what it was made from, nothing is known.
    """
    made_from = _made_from(target)
    if made_from and not _are_same(made_from, inputs):
        raise OutputError(
            f"{target} holds the summaries of another corpus, {', '.join(made_from)}; it is not overwritten",
            "Give another path with -o, or move it away.",
        )


def _made_from(target: Path) -> list[str]:
    try:
        metadata = msgspec.json.decode(pq.read_schema(target).metadata[METADATA_KEY])
        return [str(path) for path in metadata["corpus"]]
    except (OSError, pa.ArrowInvalid, msgspec.DecodeError, KeyError, TypeError):
        return []


def _are_same(before: list[str], now: list[str]) -> bool:
    if [os.path.realpath(path) for path in before] == [os.path.realpath(path) for path in now]:
        return True
    is_there = any(os.path.lexists(path) for path in before)
    return not is_there and [*map(os.path.basename, before)] == [*map(os.path.basename, now)]
