"""The inputs as given, made into a list of files in a fixed order."""

import glob
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from batchrun.errors import CorpusError, CorpusNotFoundError


class Format(StrEnum):
    PARQUET = "parquet"
    JSONL = "jsonl"


SUFFIXES = {
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
}


@dataclass(frozen=True, kw_only=True)
class CorpusFile:
    """A file of the corpus. `source` is its path as given; size in bytes and time in ns sign it."""

    source: str
    path: Path
    format: Format
    size: int
    mtime_ns: int


def find_files(inputs: list[str], is_output: Callable[[Path], bool]) -> list[CorpusFile]:
    """Expand files, folders and globs, each in name order. Folders and globs pass over batchrun outputs.

    Raises CorpusNotFoundError where nothing is found, CorpusError for a file of no known format.
    """
    files = [file for given in inputs for file in _expand(given, is_output)]
    seen: set[str] = set()
    for file in files:
        path = os.path.abspath(file.source)
        if path in seen:
            raise CorpusError(f"{path} is given twice", "Give every file once.")
        seen.add(path)
    return files


def _expand(given: str, is_output: Callable[[Path], bool]) -> Iterator[CorpusFile]:
    if "://" in given:
        raise CorpusError(f"{given} is a remote path; batchrun reads local files", "Copy or mount it first.")
    if os.path.isdir(given):
        found = [path for path in _walk(given) if _format_by_suffix(path)]
    elif os.path.exists(given):
        yield _file(given)
        return
    elif glob.has_magic(given):
        found = sorted(path for path in glob.glob(given, recursive=True) if os.path.isfile(path))
    else:
        raise CorpusNotFoundError(f"{os.path.abspath(given)} is not there", "Check the path.")
    if not found:
        raise CorpusNotFoundError(
            f"no Parquet or JSONL file in {os.path.abspath(given)}", f"Known endings: {', '.join(SUFFIXES)}."
        )
    inputs = [path for path in found if not is_output(Path(path))]
    if not inputs:
        raise CorpusNotFoundError(
            f"{os.path.abspath(given)} holds nothing but batchrun outputs",
            "Is the corpus delivered yet? Check the path.",
        )
    yield from (_file(path) for path in inputs)


def _walk(folder: str, above: frozenset[str] = frozenset()) -> Iterator[str]:
    """The files below a folder in name order, without hidden and marker files (`.x`, `_SUCCESS`).

    A link to a folder `above` is not followed.
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
    for entry in entries:
        if entry.name.startswith((".", "_")):
            continue
        if entry.is_dir():
            yield from _walk(entry.path, above | {real})
        elif entry.is_file():
            yield entry.path


def _file(source: str) -> CorpusFile:
    path = Path(source).absolute()
    try:
        str(path).encode()
        stat = path.stat()
        kind = _format_by_suffix(source) or _format_by_content(path)
    except UnicodeEncodeError:
        raise CorpusError(f"the name of {os.fsencode(path)!r} is not UTF-8", "Rename it.") from None
    except OSError as error:
        raise CorpusError(f"{path} can not be read: {error.strerror}", "Check its permissions.") from error
    return CorpusFile(source=source, path=path, format=kind, size=stat.st_size, mtime_ns=stat.st_mtime_ns)


def _format_by_suffix(path: str) -> Format | None:
    return SUFFIXES.get(os.path.splitext(path)[1].lower())


def _format_by_content(path: Path) -> Format:
    with path.open("rb") as file:
        head = file.read(64)
    if head.startswith(b"PAR1"):
        return Format.PARQUET
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return Format.JSONL
    raise CorpusError(
        f"{path} is neither Parquet nor JSONL",
        "Convert it, for example with DuckDB: COPY … TO 'corpus.parquet'.",
    )
