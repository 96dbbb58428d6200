"""A corpus: its files, its columns, and its rows as one stream."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from batchrun.corpus import arrow_file, arrow_rows, delimited, jsonl, parquet, text_files
from batchrun.corpus.columns import Columns, missing
from batchrun.corpus.files import CorpusFile
from batchrun.corpus.formats import Format
from batchrun.documents import OUTPUT_COLUMNS, DocumentBatch
from batchrun.errors import CorpusError

LOOK_BYTES_IN_ALL = 1 << 30
"""So much of all files is looked at for a column that the first rows of none have."""


@dataclass(frozen=True, kw_only=True)
class ColumnWishes:
    """What a person asked for; None: by convention."""

    text: str | None = None
    id: str | None = None
    kept: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Corpus:
    """Files in a fixed order. `carried_types` are the types in which ids and kept columns are carried;
    `output_types`, complete when all was read, those in which they come out. `variables` are the columns that
    the prompt names, with the types in which they are read.
    """

    files: list[CorpusFile]
    columns: list[Columns]
    carried_types: dict[str, pa.DataType]
    differing: list[str]
    limit: int | None = None
    variables: dict[str, pa.DataType] = field(default_factory=dict)
    json_types: jsonl.JsonTypes = field(default_factory=jsonl.JsonTypes)

    @property
    def sources(self) -> list[str]:
        return [file.source for file in self.files]

    @property
    def paths(self) -> list[Path]:
        return [file.path for file in self.files]

    @property
    def num_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def output_types(self) -> dict[str, pa.DataType]:
        if any(file.format is not Format.JSONL for file in self.files):
            return self.carried_types
        return {
            name: kind if kind == pa.int64() or name in self.differing else self.json_types.arrow_type(name)
            for name, kind in self.carried_types.items()
        }

    def batches(self) -> Iterator[DocumentBatch]:
        """All rows in input order, up to the limit. Raises CorpusError where a file turns out unreadable."""
        left = self.limit
        for batch in map(self._with_variables, self._all_batches()):
            if left is not None and len(batch) >= left:
                yield batch.head(left)
                return
            yield batch
            left = None if left is None else left - len(batch)

    def _all_batches(self) -> Iterator[DocumentBatch]:
        numbered = enumerate(self.files)
        for is_document, files in groupby(numbered, lambda entry: entry[1].format.is_document):
            if is_document:
                group = list(files)
                columns = [self.columns[number] for number, _ in group]
                yield from text_files.read(group, columns, [*self._types_read][1:])
            else:
                for number, file in files:
                    yield from self._rows(number, file)

    @property
    def _types_read(self) -> dict[str, pa.DataType]:
        return {"doc_id": pa.string()} | self.variables | self.carried_types

    def _with_variables(self, batch: DocumentBatch) -> DocumentBatch:
        """The columns that the prompt names apart from those carried; null where a file has none."""
        if not self.variables:
            return batch
        found = set(batch.carried.schema.names)
        variables = {
            name: arrow_rows.as_words(batch.carried[name])
            if name in found
            else pa.nulls(len(batch), pa.string())
            for name in self.variables
        }
        carried = batch.carried.select([*self.carried_types])
        return replace(batch, carried=carried, variables=pa.record_batch(variables))

    def _rows(self, number: int, file: CorpusFile) -> Iterator[DocumentBatch]:
        columns, types = self.columns[number], self._types_read
        match file.format:
            case Format.PARQUET:
                return parquet.read(file, number, columns, types)
            case Format.ARROW:
                return arrow_file.read(file, number, columns, types)
            case Format.JSONL:
                return jsonl.read(file, number, columns, types["doc_id"], self.json_types)
            case _:
                return delimited.read(file, number, columns, types["doc_id"])


def signature(files: list[CorpusFile], wishes: ColumnWishes, limit: int | None) -> dict[str, Any]:
    """What stands for the content of a corpus: the same signature, the same plan."""
    return {
        "files": [
            [str(file.path), file.source, file.size, file.mtime_ns]
            if file.content_hash is None
            else [file.source, file.source, file.size, file.content_hash]
            for file in files
        ],
        "text": wishes.text,
        "id": wishes.id,
        "kept": list(wishes.kept),
        "limit": limit,
    }


def open_corpus(
    files: list[CorpusFile], wishes: ColumnWishes, limit: int | None, named: Sequence[str] = ()
) -> Corpus:
    """Look at every file's head, choose the columns and agree on types; `named` are names in the prompt, which
    are variables where a file has a column of that name. Raises CorpusError.
    """
    _check_kept(wishes.kept)
    in_json = _json_columns(files, {name for name in (*wishes.kept, *named, wishes.text, wishes.id) if name})
    variables: set[str] = set()
    columns = []
    kinds: dict[str, list[pa.DataType]] = {name: [] for name in ("doc_id", *wishes.kept, *named)}
    for file in files:
        own = column_names(file) & set(named) if named else set()
        of_rows = own | (in_json.keys() & set(named) if file.format is Format.JSONL else set())
        variables |= of_rows
        more = sorted(of_rows - {*wishes.kept, "doc_id"})  # the id is carried under this name anyway
        chosen, types = _choose_columns(file, wishes, [*wishes.kept, *more], in_json)
        _check_named(file, chosen, own)
        columns.append(chosen)
        for name in kinds.keys() & types.keys():
            kinds[name].append(types[name])
    _check_kept_in_json(files, wishes.kept, in_json)
    agreed = {name: _common_type(found) for name, found in kinds.items()}
    carried = {name: agreed[name] for name in ("doc_id", *wishes.kept)}
    differing = [name for name in carried if len({*kinds[name]} - {pa.null()}) > 1]
    return Corpus(
        files=files,
        columns=columns,
        carried_types=carried,
        differing=differing,
        limit=limit,
        variables={name: agreed[name] for name in named if name in variables},
    )


def _check_named(file: CorpusFile, chosen: Columns, named: set[str]) -> None:
    """Raise CorpusError for a column that can not stand in the prompt."""
    if chosen.text in named:
        raise CorpusError(
            f"{{{chosen.text}}} in prompt.instruction names the text column of {file.label}",
            "Take it out: the document is put after the instruction by itself.",
        )
    if "doc_id" in named and chosen.id != "doc_id":
        raise CorpusError(
            f"{{doc_id}} in prompt.instruction names a column of {file.label} that is not its id column",
            "Rename the column: the output has an id of that name.",
        )


def _check_kept(kept: Sequence[str]) -> None:
    for name in kept:
        if name in OUTPUT_COLUMNS:
            raise CorpusError(
                f"column {name!r} can not be kept: the output has a column of that name",
                "Leave it out of --keep-columns, or rename it in the corpus.",
            )
        if kept.count(name) > 1:
            raise CorpusError(f"column {name!r} is to be kept twice", "Name it once in --keep-columns.")


def _json_columns(files: Sequence[CorpusFile], sought: set[str]) -> dict[str, str]:
    """The keys of JSON lines with their types, looked at until each of those sought is found, or far enough."""
    known: dict[str, str] = {}
    left = LOOK_BYTES_IN_ALL
    for file in files if sought else ():
        if file.format is Format.JSONL:
            head = jsonl.peek(file, sought - known.keys() - file.partitions.keys() if left > 0 else ())
            known = head.known | known
            left -= head.num_bytes
    return known


def _check_kept_in_json(files: Sequence[CorpusFile], kept: Sequence[str], known: dict[str, str]) -> None:
    """Raise CorpusError for a column to keep that no row has. Files of other formats have it, or were refused."""
    if not known or any(file.format is not Format.JSONL for file in files):
        return
    known = {name: "string" for file in files for name in file.partitions} | known
    for name in kept:
        if name not in known:
            source = files[0].label if len(files) == 1 else "the corpus"
            raise missing(source, name, known, "--keep-columns")


def _common_type(found: list[pa.DataType]) -> pa.DataType:
    known = [kind for kind in found if kind != pa.null()] or found
    if not known:
        return pa.string()
    return known[0] if len(set(known)) == 1 else pa.string()


def column_names(file: CorpusFile) -> set[str]:
    """The names of a file's columns and partitions; of JSON lines, those of the first rows."""
    match file.format:
        case Format.PARQUET:
            names = parquet.schema(file).names
        case Format.ARROW:
            names = arrow_file.schema(file).names
        case Format.JSONL:
            names = list(jsonl.peek(file).known)
        case Format.CSV | Format.TSV:
            names = delimited.header(file)
        case Format.TEXT | Format.HTML:
            names = ["id", "text"]
    return {*names, *file.partitions}


def _choose_columns(
    file: CorpusFile, wishes: ColumnWishes, carried: Sequence[str], in_json: Collection[str]
) -> tuple[Columns, dict[str, pa.DataType]]:
    """The columns of a file, and the types in which it carries ids and other columns."""
    named: dict[str, Any] = {"text": wishes.text, "id": wishes.id, "kept": carried}
    match file.format:
        case Format.PARQUET:
            return arrow_rows.choose_columns(file, parquet.schema(file), **named)
        case Format.ARROW:
            return arrow_rows.choose_columns(file, arrow_file.schema(file), **named)
        case Format.JSONL:
            return jsonl.choose_columns(file, **named, elsewhere=in_json)
        case Format.CSV | Format.TSV:
            return delimited.choose_columns(file, **named)
        case Format.TEXT | Format.HTML:
            return text_files.choose_columns(file, **named)
