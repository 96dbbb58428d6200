"""The plan on disk: `plan.parquet`, a row for every input row, and `plan.json`, which makes it valid."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from batchrun import atomic_file
from batchrun.errors import DamageError
from batchrun.records import ErrorType
from batchrun.run_record import RunRecord
from batchrun.seal import content_hash, decode, encode
from batchrun.shard import Shard
from batchrun.workspace import CorpusPaths

PLAN_SCHEMA = pa.schema(
    [
        pa.field("source", pa.int32(), nullable=False),  # number in the plan's sources
        pa.field("row", pa.int64(), nullable=False),  # from 0, in its source
        pa.field("hash_hi", pa.uint64()),  # the input hash; null where the row is decided already
        pa.field("hash_lo", pa.uint64()),
        pa.field("input_tokens", pa.int64()),  # of the whole prompt
        pa.field("status", pa.string()),  # failed or skipped; null: to be summarized
        pa.field("error_type", pa.string()),
        pa.field("error", pa.string()),
        pa.field("flags", pa.list_(pa.string())),
    ]
)


class PlanRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`plan.json`, written last: with it the plan, the carried columns and the spool are whole.

    `decided` counts the rows that need no run by error type (`empty_text`: skipped). `pending_since` is
    when the oldest row still waiting was first planned. `variables` are the columns named in the prompt. `carried_types` holds a serialized Arrow schema, in which ids and kept columns come out. `inputs` are
    the files, folders and globs as given, made absolute. `hashes` are those of the plan's other files, by name.
    `number` is that of the run which planned, or of the next one.

    The plan of a shard has all rows of the corpus, so that any one of them can be published from; `num_own_rows` and
    `decided` count the shard's, and its spool has no others.
    """

    signature: dict[str, Any]
    sources: list[str]
    variables: list[str]
    num_rows: int
    decided: dict[str, int]
    num_duplicate_ids: int
    notes: list[str]
    carried_types: str
    planned_at: str
    pending_since: str
    inputs: list[str] = []
    hashes: dict[str, str] = {}
    number: int | None = None
    shard: Shard | None = None
    num_own_rows: int | None = None

    @property
    def num_to_account(self) -> int:
        """Rows that a run of this plan accounts for: those of its shard, or all."""
        return self.num_rows if self.num_own_rows is None else self.num_own_rows

    @property
    def order(self) -> tuple[int, str]:
        """By which plans of a job stand: no clock but among those that were made at once."""
        return self.number or 0, self.planned_at

    def is_done_by(self, run: RunRecord) -> bool:
        """Whether a run of its corpus came after it, so that a complete one completed this plan."""
        if self.number is None:  # of an older version
            return self.planned_at <= run.updated_at
        return self.number <= run.number

    @property
    def num_skipped(self) -> int:
        return self.decided.get(ErrorType.EMPTY_TEXT, 0)

    @property
    def num_unusable(self) -> int:
        """Rows that fail before any model is asked."""
        return sum(self.decided.values()) - self.num_skipped

    @property
    def output_schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(self.carried_types)))


def encode_types(types: dict[str, pa.DataType]) -> str:
    schema: bytes = pa.schema(list(types.items())).serialize().to_pybytes()
    return schema.hex()


def read_record(paths: CorpusPaths) -> PlanRecord | None:
    """The plan's record, or None where there is no valid plan."""
    try:
        return _read(paths)
    except DamageError:
        return None


def read_intact(paths: CorpusPaths) -> PlanRecord | None:
    """The record of a plan whose files hold the bytes that were written, or None where there is no plan.

    Reads those files whole. Raises DamageError, which names the one that does not.
    """
    record = _read(paths)
    if record is None:
        return None
    for path in (paths.plan, paths.carried):
        problem = _problem(path, record.hashes.get(path.name))
        if problem is not None and _read(paths) != record:  # planned anew meanwhile
            return read_intact(paths)
        if problem is not None:
            raise damaged(path, problem)
    return record


def _problem(path: Path, expected: str | None) -> Exception | None:
    """What is wrong with a file of a plan; plans of older versions say no hash."""
    try:
        is_intact = content_hash(path) == expected
    except FileNotFoundError as error:
        return error
    return None if is_intact or expected is None else ValueError("its bytes are not those that were planned")


def _read(paths: CorpusPaths) -> PlanRecord | None:
    try:
        return decode(paths.plan_record.read_bytes(), PlanRecord)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise damaged(paths.plan_record, error) from error


def hashes_of(paths: CorpusPaths) -> dict[str, str]:
    """For the record of a plan whose other files are written."""
    return {path.name: content_hash(path) for path in (paths.plan, paths.carried)}


def write_record(paths: CorpusPaths, record: PlanRecord, owner: str) -> None:
    """Make the plan valid; the last write of planning."""
    atomic_file.write_bytes(paths.plan_record, encode(record), owner)
    atomic_file.remove(paths.retired)


def retire(paths: CorpusPaths, owner: str) -> None:
    """Take away a plan that is needed no longer. The caller holds the corpus' lock.

    First it is said that this is meant, so that a missing plan is not taken for a lost one; then the plan
    is made invalid; then its files go. Stopped anywhere, it can be called again.
    """
    atomic_file.write_bytes(paths.retired, b"{}", owner)
    atomic_file.remove(paths.plan_record)
    for path in plan_files(paths):
        atomic_file.remove(path)


def is_retired(paths: CorpusPaths) -> bool:
    return paths.retired.exists() and not paths.plan_record.exists()


def plan_files(paths: CorpusPaths) -> list[Path]:
    """What a plan consists of, as far as it is there; kept plans of completed runs too."""
    named = [paths.plan_record, paths.plan, paths.carried]
    return [path for path in named if path.exists()] + sorted(paths.checkpoint.glob("before-*.parquet"))


def open_checked(path: Any, schema: pa.Schema | None = None) -> pq.ParquetFile:
    """Open a file of ours, whose pages carry checksums, and of `schema` if given. Raises DamageError."""
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        if schema is not None and file.schema_arrow != schema:
            raise pa.ArrowInvalid("its columns are not those written")
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: a name that is no longer UTF-8
        raise damaged(path, error) from error
    return file


def keys_of(plan: Path) -> Iterator[pa.Table]:
    """`hash_hi, hash_lo` of the rows that have a key, a row group at a time. Raises DamageError."""
    for keys in _columns(plan, ["hash_hi", "hash_lo"]):
        yield keys.filter(pc.is_valid(keys["hash_hi"]))


def statuses_of(plan: Path) -> Iterator[pa.Table]:
    """`source, row, hash_hi, hash_lo, status` of all rows, a row group at a time. Raises DamageError."""
    return _columns(plan, ["source", "row", "hash_hi", "hash_lo", "status"])


def _columns(plan: Path, names: list[str]) -> Iterator[pa.Table]:
    file = open_checked(plan, PLAN_SCHEMA)
    for group in range(file.num_row_groups):
        try:
            yield file.read_row_group(group, columns=names)
        except (OSError, pa.ArrowException) as error:
            raise damaged(plan, error) from error


def places_of(plan: Path, record: PlanRecord, keys: Sequence[bytes]) -> list[str]:
    """Where texts stand, `<path> row <number>`, by their input hashes; each at its first row. Raises DamageError."""
    wanted = set(keys)
    halves = pa.array({int.from_bytes(key[:8], "big") for key in wanted}, pa.uint64())
    found: dict[bytes, str] = {}
    file = open_checked(plan, PLAN_SCHEMA)
    for group in range(file.num_row_groups):
        try:
            rows = file.read_row_group(group, columns=["source", "row", "hash_hi", "hash_lo"])
        except (OSError, pa.ArrowException) as error:
            raise damaged(plan, error) from error
        rows = rows.filter(pc.is_in(rows["hash_hi"], halves))
        for row in rows.to_pylist():
            key = row["hash_hi"].to_bytes(8, "big") + row["hash_lo"].to_bytes(8, "big")
            if key in wanted:
                found.setdefault(key, f"{record.sources[row['source']]} row {row['row']}")
    return list(found.values())


def damaged(path: Any, error: Exception) -> DamageError:
    return DamageError(
        f"{path} is damaged or gone: {str(error).splitlines()[0]}",
        "Submit the corpus again: the plan is made anew, and nothing that is finished is computed again.",
        path,
    )
