"""Writing small corpora, and reading them as a run does."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from batchrun.corpus.corpus import ColumnWishes, Corpus, open_corpus
from batchrun.corpus.inputs import find_files
from batchrun.documents import DocumentBatch, Verdict
from batchrun.records import RowStatus


def write_parquet(path: Path, columns: dict[str, Any] | pa.Table, **options: Any) -> Path:
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path, **options)
    return path


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    """JSONL; a row given as bytes is written as it is."""
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def open_paths(*paths: Path | str, limit: int | None = None, **wishes: Any) -> Corpus:
    files = find_files([str(path) for path in paths], lambda _: False).files
    return open_corpus(files, ColumnWishes(**wishes), limit)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """All batches of a corpus; rows are numbered through all of them."""

    corpus: Corpus
    batches: list[DocumentBatch]

    @property
    def places(self) -> list[tuple[int, int]]:
        """Source number and row of every row."""
        return [
            (int(source), int(row))
            for batch in self.batches
            for source, row in zip(batch.source_numbers, batch.row_numbers, strict=True)
        ]

    @property
    def texts(self) -> list[str | None]:
        return [text for batch in self.batches for text in batch.texts]

    @property
    def verdicts(self) -> dict[int, Verdict]:
        return self._numbered([batch.verdicts for batch in self.batches])

    @property
    def flags(self) -> dict[int, tuple[str, ...]]:
        return self._numbered([batch.flags for batch in self.batches])

    @property
    def outcomes(self) -> list[str]:
        """Of every row its text, or why it has none."""
        verdicts = self.verdicts
        return [
            f"{verdicts[row].status}: {verdicts[row].error_type}" if text is None else text
            for row, text in enumerate(self.texts)
        ]

    def column(self, name: str = "doc_id") -> pa.Array:
        """A carried column, as it is carried."""
        arrays = [batch.carried[name] for batch in self.batches]
        return pa.concat_arrays(arrays) if arrays else pa.array([], self.corpus.carried_types[name])

    def output(self, name: str = "doc_id") -> pa.Array:
        """A carried column in the type in which it comes out."""
        return self.column(name).cast(self.corpus.output_types[name])

    def _numbered(self, of_batches: list[Any]) -> dict[int, Any]:
        starts = [sum(len(batch) for batch in self.batches[:number]) for number in range(len(self.batches))]
        return {
            start + row: value
            for start, of_batch in zip(starts, of_batches, strict=True)
            for row, value in of_batch.items()
        }


def read(*paths: Path | str, limit: int | None = None, **wishes: Any) -> Rows:
    """Everything that a run would read, checked for what holds of every batch."""
    corpus = open_paths(*paths, limit=limit, **wishes)
    rows = Rows(corpus=corpus, batches=list(corpus.batches()))
    for batch in rows.batches:
        assert len(batch) == batch.carried.num_rows
        assert {row for row, text in enumerate(batch.texts) if text is None} == set(batch.verdicts)
        assert corpus.carried_types == dict(
            zip(batch.carried.schema.names, batch.carried.schema.types, strict=True)
        )
        assert all(
            verdict.status in (RowStatus.SKIPPED, RowStatus.FAILED) for verdict in batch.verdicts.values()
        )
    return rows
