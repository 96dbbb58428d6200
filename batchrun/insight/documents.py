"""The documents of a run: plan, memo table and request telemetry joined, in memory that does not grow with them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from batchrun.database import Database, DatabaseError, OutOfMemory, literal, statements
from batchrun.insight.facts import RunFacts, damaged_files
from batchrun.insight.lengths import Lengths, doubling_edges, even_edges, lengths_by_bucket
from batchrun.insight.plan_rows import PlanRows
from batchrun.insight.prices import Pricing
from batchrun.planning.buckets import make_buckets
from batchrun.planning.plan import PLAN_SCHEMA, PlanRecord, open_checked
from batchrun.records import RowStatus, is_permanent
from batchrun.shard import WHOLE
from batchrun.store.checkpoints import Checkpoints
from batchrun.store.rows import rows_of

LISTED = 10
"""Documents of a list of the worst."""
SAMPLE = 500
"""Summaries that are looked at one by one."""
STEPS = 128
"""Of lengths, four to a doubling: rates of reading are told apart by them."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A row: where it stands, its id as text, and what is said of it."""

    place: str
    doc_id: str
    error: str | None


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Rows of one status and, where they have no summary, of one reason."""

    status: str
    error_type: str | None
    num_rows: int
    is_permanent: bool
    examples: tuple[Example, ...]


@dataclass(frozen=True, kw_only=True)
class BucketFacts:
    """Documents of a bucket. `compression`: tokens of documents that the model read for each token of summary;
    `share`: of the time in which the run read and wrote; None where that is not known.
    """

    label: str
    num_documents: int
    num_ok: int
    num_capped: int
    num_repeating: int
    num_truncated: int
    compression: float | None
    share: float | None
    input: Lengths | None
    output: Lengths | None


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A document that is shown by itself. `seconds`: in the engine, waiting there too, all of its calls together;
    `share`: of the time in which the run read and wrote; `num_rows`: of the corpus with this text.
    """

    key: str
    doc_id: str
    place: str
    plan_row: int
    num_rows: int
    lists: tuple[str, ...]
    is_ok: bool
    bucket: str
    planned_tokens: int
    input_tokens: int
    output_tokens: int
    kept_tokens: int
    num_parts: int
    num_requests: int | None
    computed_tokens: int | None
    seconds: float | None
    share: float | None
    summary: str | None
    error: str | None
    finish_reason: str | None
    flags: tuple[str, ...]

    @property
    def compression(self) -> float | None:
        return self.kept_tokens / self.output_tokens if self.is_ok and self.output_tokens else None


@dataclass(frozen=True, kw_only=True)
class Documents:
    """`of_run`: whether these are the documents that the run asked the engine for; else, where it left no request
    telemetry, all that plan and memo table know. `num_asked` of its documents are in the telemetry. `damages` say which
    files were passed over.
    """

    of_run: bool
    num_asked: int
    num_documents: int
    reasons: tuple[Reason, ...]
    buckets: tuple[BucketFacts, ...]
    listed: tuple[Listed, ...] = ()
    damages: tuple[str, ...] = ()

    def of_list(self, name: str) -> list[Listed]:
        """`slowest` and `expensive`, the worst first; `sample`."""
        found = [one for one in self.listed if name in one.lists]
        return sorted(
            found,
            key=lambda one: (one.seconds or 0.0) if name == "slowest" else (one.share or 0.0),
            reverse=True,
        )


def read_documents(facts: RunFacts, plan: PlanRecord, pricing: Pricing | None) -> Documents:
    """What documents cost is known by `pricing`. Raises OSError and DatabaseError where a file can not be read,
    DamageError where the plan is damaged.
    """
    open_checked(facts.paths.plan, PLAN_SCHEMA).close()
    store = Checkpoints(facts.workspace.job(facts.record.job_id, facts.record.seed), "report", looks=True)
    found = store.read(lambda database, files: _Reading(facts, plan, pricing, database, files).documents())
    return replace(found, damages=(*map(str, store.damages), *found.damages))


Told = dict[tuple[int | None, int | None], dict[str, Any]]


class _Reading:
    """Over one database with the table `winner`."""

    def __init__(
        self,
        facts: RunFacts,
        plan: PlanRecord,
        pricing: Pricing | None,
        database: Database,
        files: list[str],
    ) -> None:
        self._facts, self._plan, self._pricing = facts, plan, pricing
        self._database, self._files = database, files
        self._damages: tuple[str, ...] = ()
        self._named = statements(__package__)
        self._edges = list(facts.job.spec.buckets.edges)
        self._labels = [bucket.label for bucket in make_buckets(self._edges)]

    def documents(self) -> Documents:
        self._read_requests()
        num_asked, weight = self._one("asked_in_all")
        shard = self._plan.shard or WHOLE
        plan = {"plan": literal(self._facts.paths.plan), "of": shard.of, "ordinal": shard.ordinal}
        found = self._all("rows_by_status", **plan)
        if not self._files:
            rows = self._plan_rows([row for *_, examples in found for row in examples], [])
            return Documents(
                of_run=False, num_asked=num_asked, num_documents=0, buckets=(),
                reasons=self._reasons(found, rows, {}), damages=self._damages,
            )  # fmt: skip
        self._execute(
            "documents",
            **plan,
            segments=[literal(path) for path in self._files],
            edges=self._edges,
            of_run=num_asked > 0,
        )
        self._execute("listed", most=LISTED, sample=SAMPLE)
        listed = self._all("listed_documents")
        rows = self._plan_rows(
            [row for *_, examples in found for row in examples], [row[2] for row in listed]
        )
        told = self._told(rows)
        buckets = self._buckets(weight)
        return Documents(
            of_run=num_asked > 0,
            num_asked=num_asked,
            num_documents=sum(bucket.num_documents for bucket in buckets),
            reasons=self._reasons(found, rows, told),
            buckets=buckets,
            listed=tuple(self._listed(row, rows, told, weight) for row in listed),
            damages=self._damages,
        )

    def _read_requests(self) -> None:
        files = self._facts.requests
        if not files:
            self._execute("no_requests")
            return
        most = max(1, self._facts.record.limits.get("max_num_seqs", 1))
        for name, table in _rates(self._pricing, most).items():
            self._database.connection.register(name, table)
        try:
            self._execute("document_requests", files=[literal(path) for path in files], most=most)
        except OutOfMemory:
            raise
        except DatabaseError:
            self._damages = tuple(
                f"request telemetry {path} is damaged" for path in damaged_files(files) or files
            )
            self._execute("no_requests")

    def _plan_rows(self, examples: Sequence[int], listed: Sequence[int]) -> PlanRows:
        return PlanRows(self._facts.paths, self._plan, {*examples, *listed})

    def _told(self, rows: PlanRows) -> Told:
        """Of the documents shown what the memo table says of them, by key."""
        self._database.connection.register("examples", rows.keys)
        self._execute("shown")
        told: Told = {}
        for file in self._files:
            for table in rows_of(self._database, Path(file), self._named["shown_places"]):
                for row in table.select(_TOLD).to_pylist():
                    told[row["hash_hi"], row["hash_lo"]] = row
        return told

    def _reasons(self, found: list[Any], rows: PlanRows, told: Told) -> tuple[Reason, ...]:
        def example(number: int) -> Example:
            row = rows.row(number)
            error = row.error or told.get(row.key, {}).get("error")
            return Example(place=row.place, doc_id=row.doc_id, error=error)

        return tuple(
            Reason(
                status=status,
                error_type=error_type,
                num_rows=number,
                is_permanent=bool(error_type) and is_permanent(error_type),
                examples=() if status == RowStatus.OK else tuple(map(example, sorted(examples))),
            )
            for status, error_type, number, examples in found
        )

    def _buckets(self, weight: float) -> tuple[BucketFacts, ...]:
        given, made = self._all("input_lengths"), self._all("output_lengths")
        inputs = lengths_by_bucket(given, doubling_edges(_longest(given)))
        outputs = lengths_by_bucket(made, even_edges(_longest(made)))
        return tuple(
            BucketFacts(
                label=self._labels[bucket],
                num_documents=documents,
                num_ok=num_ok,
                num_capped=capped,
                num_repeating=repeating,
                num_truncated=truncated,
                compression=compression,
                share=own / weight if weight else None,
                input=inputs.get(bucket),
                output=outputs.get(bucket),
            )
            for bucket, documents, num_ok, capped, repeating, truncated, compression, own in self._all(
                "documents_by_bucket"
            )
        )

    def _listed(self, found: Any, rows: PlanRows, told: Told, weight: float) -> Listed:
        high, low, plan_row, num_rows, is_ok, bucket, planned, *tokens, seconds, computed, own, lists = found
        row, said = rows.row(plan_row), told.get((high, low), {})
        input_tokens, output_tokens, kept_tokens, num_parts, num_requests = tokens
        return Listed(
            key=f"{high:016x}{low:016x}",
            doc_id=row.doc_id,
            place=row.place,
            plan_row=plan_row,
            num_rows=num_rows,
            lists=tuple(sorted(lists)),
            is_ok=is_ok,
            bucket=self._labels[bucket],
            planned_tokens=planned,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            kept_tokens=kept_tokens,
            num_parts=num_parts,
            num_requests=num_requests,
            computed_tokens=computed,
            seconds=seconds,
            share=own / weight if weight else None,
            summary=said.get("summary"),
            error=said.get("error"),
            finish_reason=said.get("finish_reason"),
            flags=tuple(sorted({*(said.get("flags") or ()), *row.flags})),
        )

    def _execute(self, name: str, **parameters: Any) -> Any:
        return self._database.connection.execute(self._named[name], parameters or None)

    def _all(self, name: str, **parameters: Any) -> list[Any]:
        return list(self._execute(name, **parameters).fetchall())

    def _one(self, name: str) -> tuple[Any, ...]:
        return self._database.one(self._named[name])


def _longest(rows: list[tuple[int, int, int]]) -> int:
    return max((tokens for _, tokens, _ in rows), default=1)


_TOLD = ["hash_hi", "hash_lo", "summary", "error", "finish_reason", "flags"]


def _rates(pricing: Pricing | None, most: int) -> dict[str, pa.Table]:
    """Tokens a second by step of length, and by number of sequences up to `most`; NULL where nothing is known."""
    steps, numbers = range(STEPS), range(1, most + 1)
    reading = [_rate(pricing.of_prompt_token(2 ** ((step + 0.5) / 4))) if pricing else None for step in steps]
    writing = [_rate(pricing.of_output_token(number)) if pricing else None for number in numbers]
    return {
        "prefill": pa.table(
            {"step": np.arange(STEPS, dtype=np.int32), "rate": pa.array(reading, pa.float64())}
        ),
        "decode": pa.table(
            {"running": np.arange(1, most + 1, dtype=np.int32), "rate": pa.array(writing, pa.float64())}
        ),
    }


def _rate(price: float) -> float:
    return 1 / price if price else math.inf
