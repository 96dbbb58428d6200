"""The spool: what is to be run, by bucket, as token ids. A snapshot: the corpus may change meanwhile."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from batchrun import atomic_file
from batchrun.planning import order
from batchrun.planning.plan import damaged, open_checked
from batchrun.records import LONG, Bucket, Document, Part
from batchrun.seal import content_hash

SCHEMA = pa.schema(
    [
        pa.field("hash_hi", pa.uint64(), nullable=False),
        pa.field("hash_lo", pa.uint64(), nullable=False),
        pa.field("token_ids", pa.large_binary(), nullable=False),  # of the document, uint32, little endian
        pa.field("values", pa.list_(pa.string())),  # of the columns in its prompt
        pa.field("title", pa.string()),  # this and the following: of a long document
        pa.field("part_keys", pa.binary()),  # 16 bytes each
        pa.field("part_lengths", pa.list_(pa.int64())),  # tokens of each, of `token_ids`
        pa.field("num_tokens", pa.int64()),  # of the document, without what its parts share
    ]
)
GROUP_BYTES = 1 << 20
"""Of token ids in a row group: what a reader holds at once of each part that it merges."""
PART_BYTES = 32 << 20
"""Of token ids in a part, 8 M tokens: what planning holds of each bucket at most, to sort it as a whole."""


@dataclass(frozen=True, kw_only=True)
class SpoolPart:
    """A finished file of the spool, and its place in the order of work."""

    number: int
    path: Path

    @property
    def bucket(self) -> str:
        return self.path.parent.name

    def check(self) -> None:
        """Raise DamageError where the file does not hold the bytes it was named for."""
        _, _, expected = self.path.stem.partition(".")
        try:
            is_intact = not expected or content_hash(self.path) == expected
        except OSError as error:
            raise damaged(self.path, error) from error
        if not is_intact:
            raise damaged(self.path, ValueError("its bytes are not those it was named for"))

    def keys(self) -> pa.Table:
        """`hash_hi, hash_lo` of every row, after `check`. Raises DamageError."""
        self.check()
        try:
            return open_checked(self.path, SCHEMA).read(columns=["hash_hi", "hash_lo"])
        except (OSError, pa.ArrowException) as error:
            raise damaged(self.path, error) from error

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, a row group at a time. Raises DamageError."""
        file = open_checked(self.path, SCHEMA)
        for group in range(file.num_row_groups):
            try:
                yield from file.read_row_group(group).combine_chunks().to_batches()
            except (OSError, pa.ArrowException) as error:
                raise damaged(self.path, error) from error


def token_rows(batch: pa.RecordBatch) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """The token ids of a spool batch, without a copy: row i is `ids[offsets[i]:offsets[i + 1]]`."""
    column = batch["token_ids"]
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1] // 4
    return np.frombuffer(data, np.uint32) if data is not None else np.empty(0, np.uint32), starts


def document_rows(
    batch: pa.RecordBatch,
    places: npt.NDArray[np.int64] | None = None,
    attempts: npt.NDArray[np.int64] | None = None,
) -> list[Document]:
    """Records of rows of a spool batch: all, or those at `places`, with the failed attempts of each."""
    places = np.arange(batch.num_rows) if places is None else places
    attempts = np.zeros(len(places), np.int64) if attempts is None else attempts
    ids, offsets = token_rows(batch)
    keys = np.column_stack([batch["hash_hi"].to_numpy(), batch["hash_lo"].to_numpy()])[places]
    digests = keys.astype(">u8").tobytes()
    documents = [
        Document(
            key=digests[16 * number : 16 * number + 16],
            token_ids=ids[offsets[place] : offsets[place + 1]].tolist(),
            attempts=tries,
        )
        for number, (place, tries) in enumerate(zip(places.tolist(), attempts.tolist(), strict=True))
    ]
    is_plain = batch["values"].null_count == batch["part_keys"].null_count == batch.num_rows
    return documents if is_plain else _completed(documents, batch.take(pa.array(places)))


def _completed(documents: list[Document], rows: pa.RecordBatch) -> list[Document]:
    """Documents with what else their rows of the spool say of them."""
    columns = [
        rows[name].to_pylist() for name in ("values", "title", "part_keys", "part_lengths", "num_tokens")
    ]
    return [
        replace(
            document,
            values=tuple(values or ()),
            title=title or "",
            parts=_parts(document.token_ids, part_keys or b"", lengths or ()),
            num_tokens=num_tokens or 0,
        )
        for document, values, title, part_keys, lengths, num_tokens in zip(documents, *columns, strict=True)
    ]


def _parts(token_ids: list[int], keys: bytes, lengths: Sequence[int]) -> tuple[Part, ...]:
    ends = list(accumulate(lengths))
    return tuple(
        Part(key=keys[16 * number : 16 * number + 16], token_ids=token_ids[end - length : end])
        for number, (end, length) in enumerate(zip(ends, lengths, strict=True))
    )


class SpoolWriter:
    """Appends documents by bucket; durable when `close` returns. Not valid before `plan.json` says so."""

    def __init__(self, folder: Path, buckets: list[Bucket]) -> None:
        self._folder = folder
        self._buckets = buckets
        self._waiting: dict[int, list[pa.RecordBatch]] = {}
        self._waiting_bytes: dict[int, int] = {}
        self._num_parts: dict[int, int] = {}
        remove(folder)

    def append(self, bucket: int, rows: pa.RecordBatch) -> None:
        """Add rows of `SCHEMA` to a bucket. They are held until they are a part: about PART_BYTES."""
        self._waiting.setdefault(bucket, []).append(rows)
        self._waiting_bytes[bucket] = self._waiting_bytes.get(bucket, 0) + int(rows.nbytes)
        if self._waiting_bytes[bucket] >= PART_BYTES:
            self._write(bucket)

    def _write(self, bucket: int) -> None:
        rows, size = pa.Table.from_batches(self._waiting.pop(bucket)), self._waiting_bytes.pop(bucket)
        number = self._num_parts.get(bucket, 0)
        self._num_parts[bucket] = number + 1
        folder = self._folder / self._buckets[bucket].name
        atomic_file.make_folder(folder)
        temporary = folder / f".part-{number:05d}"
        group_rows = max(1, rows.num_rows * GROUP_BYTES // max(size, GROUP_BYTES))
        with open_writer(temporary) as writer:
            writer.write_table(order.in_order(rows), row_group_size=group_rows)
        _name_by_content(temporary, folder, f"part-{number:05d}")

    def close(self) -> None:
        for bucket in list(self._waiting):
            self._write(bucket)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()


def _name_by_content(temporary: Path, folder: Path, stem: str) -> Path:
    target = folder / f"{stem}.{content_hash(temporary)}.parquet"
    atomic_file.publish(temporary, target)
    return target


def open_writer(path: Path) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path, SCHEMA, compression="zstd", compression_level=1, use_dictionary=False, write_page_checksum=True
    )


def parts(folder: Path) -> list[SpoolPart]:
    """The parts in the order of work: buckets of long documents first, so that the drain is short."""
    buckets = sorted(
        (path for path in folder.glob("*") if path.is_dir()),
        key=lambda path: (path.name == LONG.name, path.name.partition("-")[0].zfill(12)),
        reverse=True,
    )
    paths = [path for bucket in buckets for path in _part_paths(bucket)]
    return [SpoolPart(number=number, path=path) for number, path in enumerate(paths)]


def _part_paths(bucket: Path) -> list[Path]:
    """One of each number: the larger, where a cut was stopped before it took away what it had cut."""
    by_size = sorted(bucket.glob("part-*.parquet"), key=lambda path: path.stat().st_size)
    return [path for _, path in sorted({path.name.partition(".")[0]: path for path in by_size}.items())]


def _of_number(part: Path) -> list[Path]:
    return list(part.parent.glob(f"{part.name.partition('.')[0]}.*"))


def remove(folder: Path) -> None:
    """Delete a spool; it can always be made again from the corpus."""
    if folder.exists():
        shutil.rmtree(folder)


def keep_only(folder: Path, keys: pa.Table, owner: str) -> None:
    """Cut a spool down to the rows whose keys are given (few: failed ones); parts left empty are deleted."""
    wanted = set(zip(keys["hash_hi"].to_pylist(), keys["hash_lo"].to_pylist(), strict=True))
    for part in parts(folder):
        kept = (
            [rows for batch in part.batches() if (rows := _among(batch, wanted)).num_rows] if wanted else []
        )
        for rest in _of_number(part.path):  # of a cut that was stopped before it took away what it had cut
            if rest != part.path:
                rest.unlink()
        if kept:
            _replace(part.path, kept, owner)
        else:
            part.path.unlink()
            if not any(part.path.parent.iterdir()):
                part.path.parent.rmdir()


def _replace(old: Path, batches: Sequence[pa.RecordBatch], owner: str) -> None:
    temporary = atomic_file.temporary_path(old.parent, owner)
    try:
        with open_writer(temporary) as writer:
            for rows in batches:
                writer.write_batch(rows)
        written = _name_by_content(temporary, old.parent, old.name.partition(".")[0])
    finally:
        temporary.unlink(missing_ok=True)
    if written != old:
        old.unlink()


def _among(batch: pa.RecordBatch, wanted: set[tuple[int, int]]) -> pa.RecordBatch:
    keys = zip(batch["hash_hi"].to_pylist(), batch["hash_lo"].to_pylist(), strict=True)
    return batch.filter(pa.array([key in wanted for key in keys], pa.bool_()))
