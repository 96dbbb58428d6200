"""Summaries of two runs beside each other: which rows have another one, and which have none any more.

Rows are matched by their text, whatever file it stands in. Where the two jobs name different columns in their prompts
their keys have nothing in common, and rows are matched by source and row. Summaries never pass through a database: only
their hashes do, so that memory does not grow with them.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from batchrun.database import Database, literal, statements
from batchrun.documents import plain_values
from batchrun.insight.exclusions import Exclusion
from batchrun.insight.facts import RunFacts, runs_of_job
from batchrun.insight.proportions import Pairs
from batchrun.planning.plan import PlanRecord, open_checked, read_record
from batchrun.records import RowStatus
from batchrun.run_record import RowCounts
from batchrun.shard import WHOLE
from batchrun.store.audit import text_hashes
from batchrun.store.checkpoints import Checkpoints
from batchrun.store.rows import rows_of

READER = "reader"
Key = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class ChangedSummary:
    """`place` is where the row stands in A's corpus; `words` is both texts in one: `[-of A-] {+of B+}`."""

    place: str
    doc_id: str
    before: str
    after: str
    words: str


@dataclass(frozen=True, kw_only=True)
class SummaryCounts:
    """Distinct texts, or rows where they are matched by their place; each of A or B counts once."""

    same: int = 0
    changed: int = 0
    became_failed: int = 0
    mended: int = 0
    failed_in_both: int = 0
    pending: int = 0
    skipped: int = 0
    only_in_a: int = 0
    only_in_b: int = 0

    @property
    def in_both(self) -> int:
        """Those that want a summary in both: the failed and the pending ones among them."""
        return self.decided + self.pending

    @property
    def decided(self) -> int:
        """Those that have a verdict in both."""
        return self.same + self.changed + self.became_failed + self.mended + self.failed_in_both

    @property
    def failed(self) -> Pairs:
        """The same by who failed."""
        return Pairs(
            both=self.failed_in_both,
            only_a=self.mended,
            only_b=self.became_failed,
            none=self.same + self.changed,
        )


@dataclass(frozen=True, kw_only=True)
class ChangedSummaries:
    """`matched_by` is `text` or `row`. `rows` are those of A's and of B's plan by what is said of them now,
    `failed_in_plan` those that the plan itself failed; `is_of_runs`: whether this is what the two runs left, and not
    what a newer one has changed, or the one summary that two runs of a job have.
    """

    matched_by: str
    counts: SummaryCounts
    rows: tuple[RowCounts, RowCounts] = (RowCounts(), RowCounts())
    failed_in_plan: tuple[int, int] = (0, 0)
    is_of_runs: bool = True
    shown: tuple[ChangedSummary, ...] = ()

    @property
    def pairs(self) -> Pairs | None:
        """Who failed, where that speaks for the rows of both runs: most texts are in both, and a text that a plan itself
        failed, which has no key to match it by, is no more often in one than in the other.
        """
        alone = max(self.counts.only_in_a, self.counts.only_in_b)
        speaks = self.is_of_runs and self.matched_by == "text" and self.counts.decided >= alone
        a, b = self.failed_in_plan
        return self.counts.failed if speaks and a == b and self.counts.decided else None


def changed_summaries(
    a: RunFacts, b: RunFacts, num_shown: int
) -> tuple[ChangedSummaries | None, list[Exclusion]]:
    """By the memo tables and plans as they stand now; None where a plan is gone. Raises DamageError, DatabaseError,
    OSError.
    """
    plans = [read_record(facts.paths) for facts in (a, b)]
    gone = [side for side, plan in zip("AB", plans, strict=True) if plan is None]
    if gone:
        reason = "its plan is gone or damaged; submit its corpus again to have it"
        return None, [Exclusion(of="summaries", side=side, reason=reason) for side in gone]
    assert plans[0] is not None
    assert plans[1] is not None
    by_text = plans[0].variables == plans[1].variables
    with Database(a.scratch) as database:
        sides = _Sides(database, (a, b), (plans[0], plans[1]))
        sides.match(by_text=by_text)
        counts = sides.count()
        shown = sides.shown(num_shown) if counts.changed else ()
        left_out = sides.left_out(by_text=by_text)
        rows, failed_in_plan = sides.rows()
    newer = list(_standing(a, b))
    found = ChangedSummaries(
        matched_by="text" if by_text else "row",
        counts=counts,
        rows=rows,
        failed_in_plan=failed_in_plan,
        is_of_runs=not newer,
        shown=shown,
    )
    return found, [*left_out, *newer]


def word_difference(before: str, after: str) -> str:
    """Both texts in one, with the words of each that the other lacks marked: `[-old-] {+new+}`."""
    old, new = before.split(), after.split()
    said: list[str] = []
    for kind, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            said += old[start:end]
            continue
        if end > start:
            said.append(f"[-{' '.join(old[start:end])}-]")
        if last > first:
            said.append(f"{{+{' '.join(new[first:last])}+}}")
    return " ".join(said)


def _standing(a: RunFacts, b: RunFacts) -> Iterator[Exclusion]:
    """What plans and memo tables can not say, since a newer run has changed them."""
    for side, facts in (("A", a), ("B", b)):
        newest = runs_of_job(facts)[-1].record.run_id
        if newest != facts.record.run_id:
            reason = f"they are told as they stand after {newest}, the newest run of this corpus"
            yield Exclusion(of="summaries", side=side, reason=reason)
    if (a.record.job_id, a.record.seed) == (b.record.job_id, b.record.seed):
        reason = "both runs are of one job and seed, which has one summary of each text"
        yield Exclusion(of="summaries", reason=reason)


class _Sides:
    """Plans and memo tables of both sides in one database."""

    def __init__(
        self, database: Database, facts: tuple[RunFacts, RunFacts], plans: tuple[PlanRecord, PlanRecord]
    ) -> None:
        self._database = database
        self._named = statements(__package__)
        self._facts, self._plans = facts, plans
        self._stores = [
            Checkpoints(each.workspace.job(each.record.job_id, each.record.seed), READER, looks=True)
            for each in facts
        ]
        self._execute("create_plan_rows")
        self._execute("create_summary_hashes")
        for side in (0, 1):
            self._add_plan(side)
            self._add_hashes(side)

    def _add_plan(self, side: int) -> None:
        plan, shard = self._plans[side], self._plans[side].shard or WHOLE
        sources = {
            "number": pa.array(range(len(plan.sources)), pa.int32()),
            "path": pa.array(plan.sources, pa.string()),
        }
        connection = self._database.connection
        connection.register("given_sources", pa.table(sources))
        path = literal(self._facts[side].paths.plan)
        self._execute("add_plan_rows", side=side, plan=path, of=shard.of, ordinal=shard.ordinal)
        connection.unregister("given_sources")

    def _add_hashes(self, side: int) -> None:
        def task(source: Database, files: list[str]) -> None:
            connection = self._database.connection
            connection.execute("DELETE FROM summary_hashes WHERE side = $side", {"side": side})
            for file in files:
                for rows in rows_of(source, Path(file), self._named["document_places"]):
                    hashed = {name: rows[name] for name in ("hash_hi", "hash_lo", "rank")}
                    connection.register("hashed", pa.table(hashed | {"digest": text_hashes(rows["summary"])}))
                    connection.execute(
                        "INSERT INTO summary_hashes SELECT $side, * FROM hashed", {"side": side}
                    )
                    connection.unregister("hashed")

        self._stores[side].read(task)

    def match(self, *, by_text: bool) -> None:
        self._execute("match_by_text" if by_text else "match_by_place")
        self._execute("compared_summaries")

    def count(self) -> SummaryCounts:
        return SummaryCounts(**dict(self._execute("count_fates").fetchall()))

    def rows(self) -> tuple[tuple[RowCounts, RowCounts], tuple[int, int]]:
        """Of both sides, by status alone, and those that the plan failed."""
        counts: list[dict[str, int]] = [{}, {}]
        in_plan = [0, 0]
        for side, standing, number, decided in self._execute("count_standing").fetchall():
            counts[side][standing] = number
            in_plan[side] += decided * (standing == RowStatus.FAILED)
        a, b = (RowCounts(total=sum(each.values()), **each) for each in counts)
        return (a, b), (in_plan[0], in_plan[1])

    def left_out(self, *, by_text: bool) -> list[Exclusion]:
        found = []
        for side, number, total in self._execute("count_keyless").fetchall() if by_text else []:
            reason = "they have no key: empty, or decided before any model was asked"
            found.append(
                Exclusion(of="summaries", side="AB"[side], number=number, total=total, reason=reason)
            )
        return [one for one in found if one.number]

    def shown(self, most: int) -> tuple[ChangedSummary, ...]:
        rows = self._execute("changed_summaries", most=most).fetchall()
        texts = [
            self._texts(0, [(row[2], row[3]) for row in rows]),
            self._texts(1, [(row[4], row[5]) for row in rows]),
        ]
        places = self._places([row[0] for row in rows])
        found = []
        for number, _, *keys in rows:
            before, after = texts[0][keys[0], keys[1]], texts[1][keys[2], keys[3]]
            place, doc_id = places[number]
            words = word_difference(before, after)
            found.append(ChangedSummary(place=place, doc_id=doc_id, before=before, after=after, words=words))
        return tuple(found)

    def _texts(self, side: int, keys: Collection[Key]) -> dict[Key, str]:
        asked = pa.table(
            {
                name: pa.array([key[half] for key in keys], pa.uint64())
                for half, name in enumerate(("hash_hi", "hash_lo"))
            }
        )

        def task(source: Database, files: list[str]) -> dict[Key, str]:
            source.connection.register("asked", asked)
            rows = (
                row
                for file in files
                for table in rows_of(source, Path(file), self._named["asked_places"])
                for row in table.select(["hash_hi", "hash_lo", "summary"]).to_pylist()
            )
            return {(row["hash_hi"], row["hash_lo"]): row["summary"] or "" for row in rows}

        return self._stores[side].read(task)

    def _places(self, numbers: list[int]) -> dict[int, tuple[str, str]]:
        """Of rows of A's plan where they stand, and their ids."""
        paths, sources = self._facts[0].paths, self._plans[0].sources
        found = {}
        for number, plan_row, carried in zip(
            sorted(numbers),
            _chosen(paths.plan, ["source", "row"], numbers),
            _chosen(paths.carried, ["doc_id"], numbers),
            strict=True,
        ):
            [source], [row] = plan_row["source"].to_pylist(), plan_row["row"].to_pylist()
            found[number] = (f"{sources[source]} row {row}", str(plain_values(carried["doc_id"])[0]))
        return found

    def _execute(self, name: str, **parameters: Any) -> Any:
        return self._database.connection.execute(self._named[name], parameters or None)


def _chosen(path: Path, columns: list[str], numbers: Collection[int]) -> Iterator[pa.Table]:
    """Rows of a file of the plan, each by itself, by their numbers as they rise."""
    file = open_checked(path)
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    ends = np.cumsum(sizes)
    read: dict[int, pa.Table] = {}
    for number in sorted(numbers):
        group = int(np.searchsorted(ends, number, side="right"))
        if group not in read:
            read = {group: file.read_row_group(group, columns=columns)}
        yield read[group].slice(number - int(ends[group]) + sizes[group], 1)
