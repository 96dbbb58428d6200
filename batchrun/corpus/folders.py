"""Walking folders and patterns: in name order, without hidden and marker files."""

import fnmatch
import glob
import json
import os
from collections.abc import Iterator

from batchrun.errors import CorpusError


def is_hidden(name: str) -> bool:
    """Hidden and marker files, by Spark's rule: `.x`, `_SUCCESS`, `_temporary`; `_key=value` is a partition."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def walk(folder: str, notes: list[str], above: frozenset[str] = frozenset()) -> Iterator[str]:
    """The files below a folder in name order, without hidden and marker files.

    A link to a folder `above` is not followed. Raises CorpusError for a folder that can not be read.
    """
    real = os.path.realpath(folder)
    if real in above:
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise CorpusError(
            f"{os.path.abspath(folder)} can not be read: {error.strerror}", "Check its permissions."
        ) from error
    listed = _listed_arrow_files(folder, {entry.name for entry in entries})
    stale = 0
    for entry in entries:
        if is_hidden(entry.name):
            continue
        if entry.is_dir():
            yield from walk(entry.path, notes, above | {real})
        elif listed is not None and entry.name.endswith(".arrow") and entry.name not in listed:
            stale += 1
        elif entry.is_file():
            yield entry.path
        elif entry.is_symlink():
            raise CorpusError(
                f"{os.path.abspath(entry.path)} links to {os.readlink(entry.path)}, which is not there",
                "Mend the link, or take it away.",
            )
        else:
            notes.append(f"{entry.path} is no regular file and is passed over")
    if stale:
        notes.append(f"{folder}: {stale:,} .arrow files that its state.json does not name are passed over")


def matched(pattern: str, notes: list[str]) -> list[str]:
    """The files of a pattern in name order, and those below folders of it; hidden and marker files only
    where the pattern itself begins a name with `.` or `_`.
    """
    wanted = [part for part in pattern.split("/") if part.startswith((".", "_"))]
    found: dict[str, None] = {}
    for path in sorted(glob.glob(pattern, recursive=True)):
        if any(is_hidden(part) and not _is_named(part, wanted) for part in path.split("/")):
            continue
        if os.path.isfile(path):
            found[path] = None
        elif os.path.isdir(path) and "**" not in pattern:
            found |= dict.fromkeys(walk(path, notes))
    return list(found)


def _is_named(part: str, wanted: list[str]) -> bool:
    return part in {".", ".."} or any(fnmatch.fnmatchcase(part, name) for name in wanted)


def _listed_arrow_files(folder: str, present: set[str]) -> set[str] | None:
    """The data files that a folder of Hugging Face datasets lists, or None for another folder: caches of
    its transformations may lie beside them. Raises CorpusError where one is missing.
    """
    if not {"state.json", "dataset_info.json"} <= present:
        return None
    state = os.path.abspath(os.path.join(folder, "state.json"))
    try:
        with open(state, "rb") as file:
            listed = [entry["filename"] for entry in json.load(file)["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    missing = [name for name in listed if name not in present]
    if missing:
        raise CorpusError(
            f"{state} names {missing[0]}, which is not there ({len(missing):,} files are missing)",
            "Copy the dataset again, whole.",
        )
    return set(listed)
