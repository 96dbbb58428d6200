"""What is compared with what: a run or a bench, what made it, and which settings differ between two."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from batchrun.insight.facts import RunFacts
from batchrun.run_record import RowCounts


@dataclass(frozen=True, kw_only=True)
class Side:
    """`name` is a run's id, or a bench's path. `settings` are all that may explain a difference, by dotted name. `rows`
    are those of a run by what is said of them, whether or not it published them.
    """

    name: str
    job_id: str | None = None
    release: str | None = None
    state: str
    started_at: str
    engine: str | None
    rows: RowCounts | None = None
    settings: dict[str, Any]

    @property
    def left_nothing(self) -> bool:
        """Whether no row of a run has a verdict."""
        return self.rows is not None and not self.rows.ok + self.rows.failed

    @property
    def missing(self) -> str | None:
        """`834 of 900 rows have no verdict yet`; None where none lacks one."""
        if self.rows is None or not self.rows.pending:
            return None
        return f"{self.rows.pending:,} of {self.rows.total:,} rows have no verdict yet"


def side_of_run(facts: RunFacts, rows: RowCounts) -> Side:
    """Settings are those of the spec as the job was last submitted, of the engine as this run had it, and where it
    ran. What does not name the run itself is taken out of them.
    """
    record, job = facts.record, facts.job
    told = {
        "spec": {name: value for name, value in msgspec.to_builtins(job.spec).items() if name != "name"},
        "limits": record.limits,
        "model": job.fields.get("model"),
        "resolved": msgspec.to_builtins(job.resolved),
        "engine": record.engine,
        "host": record.host,
        "corpus": record.corpus,
        "shard": str(record.shard or "") or None,
        "seed": record.seed,
    }
    return Side(
        name=record.run_id,
        job_id=record.job_id,
        release=record.release,
        state=record.told_state,
        started_at=record.started_at,
        engine=record.engine,
        rows=rows,
        settings=dict(flat(told)),
    )


def changed_settings(a: Side, b: Side) -> tuple[str, ...]:
    """`engine.max_num_seqs: 1 → 8` for each that differs; what the engine was given is not told again as what it has."""
    names = [name for name in {**a.settings, **b.settings} if a.settings.get(name) != b.settings.get(name)]
    of_spec = {name.rpartition(".")[2] for name in names if name.startswith("spec.")}
    return tuple(
        f"{name.removeprefix('spec.')}: {_text(a.settings.get(name))} → {_text(b.settings.get(name))}"
        for name in names
        if not (name.startswith("limits.") and name.rpartition(".")[2] in of_spec)
    )


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def flat(values: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Names with dots and values of nested tables."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value
