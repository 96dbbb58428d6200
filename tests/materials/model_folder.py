"""A model folder that is either whole or not there."""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
MODELS = REPOSITORY / ".cache" / "models"


class MaterialError(Exception):
    """A material cannot be made here; the message says what is missing and what to do."""


def build_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return `folder`, after having `build` fill it if it is not there yet.

    `build` gets an empty sibling folder, which takes its final name in one rename at the end: a folder
    under its final name is complete, whenever the process was killed. When two processes build at once,
    the first to finish is kept. The guarantee ends at power loss: nothing is synced, because everything
    here can be made again.
    """
    if is_complete(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        built = Path(scratch) / folder.name
        built.mkdir()
        build(built)
        _take_name(built, folder)
    return folder


def is_complete(folder: Path) -> bool:
    """Say whether `folder` is a model folder; see `build_once` for why no more than this is looked at."""
    return (folder / "config.json").is_file()


def make_from_command_line(make: Callable[[Path], Path], default: Path) -> None:
    """Make the folder that the command line names, or `default`, and print its path."""
    folder = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else default
    try:
        print(make(folder))
    except MaterialError as error:
        sys.exit(f"error: {error}")


def _take_name(built: Path, folder: Path) -> None:
    try:
        os.rename(built, folder)  # noqa: PTH104 - fails on a folder that has something in it; `replace` reads as if it did not
    except OSError as error:
        if not is_complete(folder):
            raise MaterialError(
                f"{folder} is there already and is no model folder. Move it away, or name another folder."
            ) from error
