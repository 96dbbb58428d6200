"""The inputs as given, made into a list of files in a fixed order."""

import glob
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from batchrun.corpus import delimited, jsonl
from batchrun.corpus.columns import TEXT_NAMES
from batchrun.corpus.files import CorpusFile, is_damage, opened
from batchrun.corpus.folders import matched, walk
from batchrun.corpus.formats import (
    Format,
    Rank,
    format_by_content,
    format_by_suffix,
    holds_json_lines,
    is_json,
    known_endings,
)
from batchrun.corpus.partitions import partitions
from batchrun.errors import CorpusError, CorpusNotFoundError

HEAD_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The files of a corpus, and what a person should know of those that were passed over."""

    files: list[CorpusFile]
    notes: list[str]


def find_files(
    inputs: list[str],
    is_output: Callable[[Path], bool],
    *,
    stdin: CorpusFile | None = None,
    text: str | None = None,
) -> Inputs:
    """Expand files, folders and globs, each in name order; `-` is `stdin`. Folders and globs pass over
    batchrun outputs, hidden and marker files, files of no known kind, and documents beside tables; a CSV
    or `.json` without the column `text` (or one of that role by convention) is none beside documents.

    Raises CorpusNotFoundError where nothing is found, CorpusError for a file of no known format.
    """
    notes: list[str] = []
    files: list[CorpusFile] = []
    for given in inputs:
        files += [stdin] if stdin and given == stdin.source else _expand(given, is_output, text, notes)
    seen: set[str] = set()
    for file in files:
        path = os.path.abspath(file.source)
        if path in seen:
            raise CorpusError(
                f"{file.label if file is stdin else path} is given twice", "Give every file once."
            )
        seen.add(path)
    return Inputs(files=files, notes=notes)


def _expand(
    given: str, is_output: Callable[[Path], bool], text: str | None, notes: list[str]
) -> Iterator[CorpusFile]:
    if "://" in given:
        raise CorpusError(f"{given} is a remote path; batchrun reads local files", "Copy or mount it first.")
    if os.path.isdir(given):
        found = list(walk(given, notes))
        folder = given
    elif os.path.exists(given):
        yield _file(given)
        return
    elif glob.has_magic(given):
        found = matched(given, notes)
        folder = ""
    else:
        raise CorpusNotFoundError(f"{os.path.abspath(given)} is not there", "Check the path.")
    inputs = [path for path in found if not (_may_be_output(path) and is_output(Path(path)))]
    if found and not inputs:
        raise CorpusNotFoundError(
            f"{os.path.abspath(given)} holds nothing but batchrun outputs",
            "Is the corpus delivered yet? Check the path.",
        )
    for path in _chosen(given, inputs, text, notes):
        name = os.path.relpath(path, folder) if folder else path
        yield replace(_file(path), name=name)


def _may_be_output(path: str) -> bool:
    """An output is Parquet, whatever its name; ten thousand text files need not be opened to see it."""
    return format_by_suffix(path) in {Format.PARQUET, None}


def _chosen(given: str, found: list[str], text: str | None, notes: list[str]) -> list[str]:
    """Of the files found, those of the highest rank."""
    ranks = [_rank(path) for path in found]
    if Rank.DOCUMENTS in ranks:
        ranks = [
            None if _is_other_table(path, text) else rank for path, rank in zip(found, ranks, strict=True)
        ]
    highest = max((rank for rank in ranks if rank), default=None)
    if highest is None:
        endings = f"; what there is: {_endings(found)}" if found else ""
        raise CorpusNotFoundError(
            f"no file of a known kind in {os.path.abspath(given)}{endings}",
            f"Known endings: {known_endings()}.",
        )
    lower = [path for path, rank in zip(found, ranks, strict=True) if rank and rank < highest]
    unknown = [path for path, rank in zip(found, ranks, strict=True) if rank is None]
    if lower:
        notes.append(
            f"{given}: {len(lower):,} {_endings(lower)} files beside the data are no rows; they are passed over"
        )
    if unknown:
        notes.append(
            f"{given}: {len(unknown):,} files that hold no texts or are of no known kind are passed over "
            f"({_endings(unknown)})"
        )
    return [path for path, rank in zip(found, ranks, strict=True) if rank == highest]


def _rank(path: str) -> Rank | None:
    kind = format_by_suffix(path)
    if kind is not None:
        return Rank.DOCUMENTS if kind.is_document else Rank.TABLES
    if is_json(path) and holds_json_lines(_head(path)):
        return Rank.JSON
    if not os.path.splitext(path)[1] and format_by_content(_head(path)):
        return Rank.TABLES
    return None


def _is_other_table(path: str, text: str | None) -> bool:
    """Whether this is a CSV or `.json` without a text column: beside documents, it is no corpus."""
    try:
        if format_by_suffix(path) in {Format.CSV, Format.TSV}:
            known = delimited.header(_file(path))
        elif is_json(path):
            known = [*jsonl.peek(_file(path)).known]
        else:
            return False
    except CorpusError:
        return True
    return not {text, *TEXT_NAMES}.intersection(known)


def _endings(paths: list[str]) -> str:
    """The endings of some files, the most frequent first."""
    endings = [os.path.splitext(path)[1] or "no ending" for path in paths]
    by_number = sorted(set(endings), key=lambda ending: (-endings.count(ending), ending))
    return ", ".join(by_number[:5]) + (", …" if len(by_number) > 5 else "")  # noqa: PLR2004


def _file(source: str) -> CorpusFile:
    path = Path(source).absolute()
    try:
        str(path).encode()
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise CorpusError(f"{path} is no regular file", "Give a pipe on standard input: batchrun … -")
        kind = format_by_suffix(source) or _format_by_content(source)
    except UnicodeEncodeError:
        raise CorpusError(f"the name of {os.fsencode(path)!r} is not UTF-8", "Rename it.") from None
    except OSError as error:
        raise CorpusError(f"{path} can not be read: {error.strerror}", "Check its permissions.") from error
    return CorpusFile(
        source=source,
        path=path,
        format=kind,
        size=found.st_size,
        mtime_ns=found.st_mtime_ns,
        name=source,
        partitions=partitions(source),
    )


def _format_by_content(source: str) -> Format:
    kind = format_by_content(_head(source))
    if kind is None:
        raise CorpusError(
            f"{os.path.abspath(source)} is of no known kind",
            "Convert it, for example with DuckDB: COPY … TO 'corpus.parquet'; or name it by its kind: "
            f"{known_endings()}.",
        )
    return kind


def _head(source: str) -> bytes:
    """The first bytes of a file, unpacked; none of one that can not be unpacked."""
    path = Path(source).absolute()
    file = CorpusFile(source=source, path=path, format=Format.JSONL, size=1, mtime_ns=0)
    try:
        with opened(file) as stream:
            return stream.read(HEAD_BYTES)
    except OSError as error:
        if is_damage(error):
            return b""
        raise CorpusError(f"{path} can not be read: {error.strerror}", "Check its permissions.") from error
