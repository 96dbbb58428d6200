"""A corpus in shards: how each of them stands, and the plan that all of them are published by."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from batchrun.job import Job
from batchrun.planning.plan import PlanRecord, read_record
from batchrun.run_record import RowCounts, RunRecord, RunState
from batchrun.selection import as_it_stands
from batchrun.shard import Shard
from batchrun.telemetry.run_records import latest_runs

NAMED_AT_MOST = 12
"""Shards of one state that a line names."""


class ShardState(StrEnum):
    """`OUTDATED`: planned from another state of the corpus than the newest plan (which plan is newest, the numbers of
    runs say), or with other columns or buckets; or planned anew, and not run since.
    """

    COMPLETE = "complete"
    RUNNING = "running"
    UNFINISHED = "unfinished"
    OUTDATED = "outdated"
    MISSING = "missing"


_TOLD = {
    ShardState.MISSING: ("never started", "submit the corpus with --shard {shard}"),
    ShardState.UNFINISHED: (
        "unfinished",
        "go on: the same submit, or batchrun resume {job_id} --shard {shard}",
    ),
    ShardState.OUTDATED: (
        "planned before the corpus changed, or with other columns or buckets",
        "submit the corpus again with --shard {shard}",
    ),
    ShardState.RUNNING: ("running", "watch it: batchrun status {job_id}"),
}


@dataclass(frozen=True, kw_only=True)
class ShardStanding:
    """A shard of a split and its last run, None where it never ran."""

    shard: Shard
    state: ShardState
    run: RunRecord | None = None


@dataclass(frozen=True, kw_only=True)
class Split:
    """All shards of one way to share out a corpus. `plans` are those of the newest state of the corpus that any of them
    has, by corpus id, each with all rows; the newest first. `others` are shards of this corpus in other splits.
    """

    job_id: str
    standings: list[ShardStanding]
    plans: list[tuple[str, PlanRecord]]
    others: list[Shard]

    def lines(self, counts: Sequence[RowCounts]) -> list[str]:
        """Which shards there are and which are missing, with what is to be done; `counts` are the rows of each."""
        states = [standing.state for standing in self.standings]
        num_complete = states.count(ShardState.COMPLETE)
        lines = [f"joined: {num_complete:,} of {len(states):,} shards are complete"]
        lines += [self._line(state, counts) for state in _TOLD if state in states]
        broken = self._named(ShardState.COMPLETE, counts, pending_only=True)
        if broken:
            lines.append(f"complete, but summaries are damaged or gone: {broken}; submit them again")
        if self.others:
            found = ", ".join(map(str, self.others))
            lines.append(
                f"this corpus has shards of another split, too: {found}; what they finished is in the output, "
                f"what they lack is not told here"
            )
        return lines

    @property
    def untried(self) -> list[str]:
        """Which shards may have rows that nobody tried."""
        states = (ShardState.MISSING, ShardState.UNFINISHED, ShardState.RUNNING, ShardState.OUTDATED)
        found = {state: [one.shard for one in self.standings if one.state is state] for state in states}
        return [
            f"shards {_TOLD[state][0]}: {', '.join(map(str, shards[:NAMED_AT_MOST]))}"
            + (f" and {len(shards) - NAMED_AT_MOST:,} more" if len(shards) > NAMED_AT_MOST else "")
            for state, shards in found.items()
            if shards
        ]

    def _line(self, state: ShardState, counts: Sequence[RowCounts]) -> str:
        said, next_step = _TOLD[state]
        first = next(standing.shard for standing in self.standings if standing.state is state)
        return f"{said}: {self._named(state, counts)}; {next_step.format(job_id=self.job_id, shard=first)}"

    def _named(self, state: ShardState, counts: Sequence[RowCounts], *, pending_only: bool = False) -> str:
        found = [
            f"{standing.shard} ({rows.pending:,} rows pending)"
            for standing, rows in zip(self.standings, counts, strict=True)
            if standing.state is state and (rows.pending or not pending_only)
        ]
        more = len(found) - NAMED_AT_MOST
        return ", ".join(found[:NAMED_AT_MOST]) + (f" and {more:,} more" if more > 0 else "")


def find_split(job: Job, last: RunRecord) -> Split:
    """The split that the shard of a run belongs to."""
    assert last.shard is not None, "a run of a shard"
    found = [
        _Found(shard=record.shard, folder=folder, run=record, plan=read_record(job.paths.corpus(folder.name)))
        for folder, record in latest_runs(job.workspace, job.job_id)
        if (record.seed, record.whole_id) == (job.seed, last.whole_id) and record.shard is not None
    ]
    own = {each.shard.number: each for each in found if each.shard.of == last.shard.of}
    planned = sorted(
        ((each.folder.name, each.plan) for each in own.values() if each.plan is not None),
        key=lambda each: each[1].order,
        reverse=True,
    )
    newest = planned[0][1] if planned else None
    others = [each.shard for each in found if each.shard.of != last.shard.of]
    return Split(
        job_id=job.job_id,
        standings=[
            _standing(Shard(number=number, of=last.shard.of), own.get(number), newest)
            for number in range(1, last.shard.of + 1)
        ],
        plans=[(name, plan) for name, plan in planned if newest and plan.signature == newest.signature],
        others=sorted(others, key=lambda shard: (shard.of, shard.number)),
    )


@dataclass(frozen=True, kw_only=True)
class _Found:
    shard: Shard
    folder: Path
    run: RunRecord
    plan: PlanRecord | None


def _standing(shard: Shard, found: _Found | None, newest: PlanRecord | None) -> ShardStanding:
    if found is None:
        return ShardStanding(shard=shard, state=ShardState.MISSING)
    return ShardStanding(shard=shard, state=_state(found, newest), run=found.run)


def _state(found: _Found, newest: PlanRecord | None) -> ShardState:
    """A plan that `gc` took away tells nothing against its run."""
    state, plan = as_it_stands(found.folder, found.run).state, found.plan
    if state is RunState.RUNNING:
        return ShardState.RUNNING
    if plan is not None and newest is not None and plan.signature != newest.signature:
        return ShardState.OUTDATED
    if state is not RunState.COMPLETE:
        return ShardState.UNFINISHED
    is_run = plan is None or plan.is_done_by(found.run)
    return ShardState.COMPLETE if is_run else ShardState.OUTDATED
