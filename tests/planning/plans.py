"""Small plans on disk, and what is in them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from batchrun.documents import DocumentBatch, Verdict
from batchrun.planning import spool
from batchrun.planning.measure import PlanSettings
from batchrun.planning.plan import PlanRecord, encode_types, write_record
from batchrun.planning.planner import Counted, Planner
from batchrun.planning.work import SettledKeys, Work
from batchrun.prompts.frames import PromptFrame, Prompts
from batchrun.prompts.tokenizer import Tokenizer
from batchrun.shard import WHOLE, Shard
from batchrun.workspace import CorpusPaths


class TenTokens(Prompts):
    """Every prompt has ten tokens around its document; those that name a column have their words besides."""

    template_tokens = 10

    def __init__(self) -> None:
        pass

    def document(self, _: Mapping[str, str]) -> PromptFrame:
        return PromptFrame(prefix=[0] * 6, suffix=[0] * 4)

    def document_words(self, values: Mapping[str, str]) -> str:
        return " ".join(values.values())

    def part(self, number: int, title: str, values: Mapping[str, str]) -> PromptFrame:
        return self.document(values)


FRAME_TOKENS = 10
SETTINGS = PlanSettings(prompts=TenTokens(), max_tokens=20, max_model_len=200, edges=(16, 32), policy="fail")
"""A document may have 170 tokens; buckets begin at documents of 0, 6 and 22 tokens."""

SETTLED = pa.schema(
    {"hash_hi": pa.uint64(), "hash_lo": pa.uint64(), "done": pa.bool_(), "attempts": pa.int32()}
)


def digits(num_tokens: int, digit: int = 7) -> str:
    """A text of as many tokens: SmolLM2 has one for every digit."""
    return str(digit) * num_tokens


def make_batch(
    texts: Sequence[str | None],
    *,
    source: int = 0,
    first_row: int = 0,
    ids: Any = None,
    verdicts: Mapping[int, Verdict] | None = None,
    flags: Mapping[int, tuple[str, ...]] | None = None,
    variables: Mapping[str, Sequence[str | None]] | None = None,
) -> DocumentBatch:
    ids = pa.array(range(first_row, first_row + len(texts)), pa.int64()) if ids is None else ids
    return DocumentBatch(
        source=source,
        first_row=first_row,
        texts=list(texts),
        carried=pa.record_batch({"doc_id": ids}),
        verdicts=verdicts or {},
        flags=flags or {},
        variables=None if variables is None else pa.record_batch(dict(variables)),
    )


def settled(verdicts: Iterable[tuple[bytes, bool, int]] = ()) -> SettledKeys:
    """Verdicts of a memo table: key, done, failed attempts."""
    rows = [
        {
            "hash_hi": int.from_bytes(key[:8]),
            "hash_lo": int.from_bytes(key[8:]),
            "done": done,
            "attempts": attempts,
        }
        for key, done, attempts in verdicts
    ]
    table = pa.Table.from_pylist(rows, schema=SETTLED)

    def feed(consume: Callable[[pa.RecordBatchReader], None]) -> None:
        consume(table.to_reader())

    return feed


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan in a folder of its own."""

    folder: Path
    counted: Counted
    record: PlanRecord

    @property
    def paths(self) -> CorpusPaths:
        return paths_in(self.folder)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """`plan.parquet`; the two halves of the hash as one `key`."""
        rows: list[dict[str, Any]] = pq.read_table(self.paths.plan).to_pylist()
        for row in rows:
            high, low = row.pop("hash_hi"), row.pop("hash_lo")
            row["key"] = None if high is None else high.to_bytes(8) + low.to_bytes(8)
        return rows

    @property
    def spool(self) -> dict[str, list[tuple[bytes, list[int]]]]:
        """Keys and token ids of every bucket, in the order of work."""
        found: dict[str, list[tuple[bytes, list[int]]]] = {}
        for part in spool.parts(self.paths.spool):
            rows = [row for batch in part.batches() for row in _spool_rows(batch)]
            found.setdefault(part.path.parent.name, []).extend(rows)
        return found

    def work(self, verdicts: Iterable[tuple[bytes, bool, int]] = ()) -> Work:
        return Work(self.paths, self.record, self.folder / "scratch", settled(verdicts), SETTINGS.tokens_read)


def _spool_rows(batch: pa.RecordBatch) -> Iterator[tuple[bytes, list[int]]]:
    ids, offsets = spool.token_rows(batch)
    for row in range(batch.num_rows):
        key = b"".join(batch[half][row].as_py().to_bytes(8) for half in ("hash_hi", "hash_lo"))
        yield key, ids[offsets[row] : offsets[row + 1]].tolist()


def paths_in(folder: Path) -> CorpusPaths:
    return CorpusPaths(checkpoint=folder / "checkpoints" / "corpus", spool=folder / "buckets" / "corpus")


def make_planner(
    folder: Path, tokenizer: Tokenizer, settings: PlanSettings = SETTINGS, shard: Shard = WHOLE
) -> Planner:
    return Planner(
        paths=paths_in(folder),
        scratch=folder / "scratch",
        owner="run",
        tokenizer=tokenizer,
        settings=settings,
        shard=shard,
    )


def make_plan(
    folder: Path,
    tokenizer: Tokenizer,
    batches: Iterable[DocumentBatch],
    *,
    done: Iterable[bytes] = (),
    settings: PlanSettings = SETTINGS,
    shard: Shard = WHOLE,
) -> Plan:
    """Plan batches and make the plan valid."""
    counted = make_planner(folder, tokenizer, settings, shard).plan(
        batches, settled([(key, True, 0) for key in done]), lambda _: None
    )
    record = PlanRecord(
        signature={"files": []},
        sources=["a.parquet"],
        variables=list(settings.variables),
        num_rows=counted.num_rows,
        decided=counted.decided,
        num_duplicate_ids=counted.num_duplicate_ids,
        notes=[],
        carried_types=encode_types({"doc_id": pa.int64()}),
        planned_at="2026-01-01T00:00:00+00:00",
        pending_since="2026-01-01T00:00:00+00:00",
        shard=shard,
        num_own_rows=counted.num_own,
    )
    write_record(paths_in(folder), record, "run")
    return Plan(folder=folder, counted=counted, record=record)
