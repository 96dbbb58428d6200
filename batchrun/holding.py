"""Who holds a corpus now, and how far that run is: its lock says who, its run record how far."""

from dataclasses import dataclass
from pathlib import Path

from batchrun.clock import duration, seconds_since
from batchrun.errors import LockedError
from batchrun.run_record import RunRecord
from batchrun.store.lock import Holder, RunLock, holder_of
from batchrun.telemetry.run_records import read_run
from batchrun.workspace import CorpusPaths, Workspace

SILENT_SECONDS = 60
"""A run that computes refreshes its record every two seconds; after so long without it, this is said."""


@dataclass(frozen=True, kw_only=True)
class Holding:
    """A lock that is held. `record` is its holder's; None where it has written none yet, or is no run."""

    job_id: str
    holder: Holder
    record: RunRecord | None

    def __str__(self) -> str:
        return f"{self.holder}{'' if self.record is None else ': ' + how_far(self.record)}"


def holding_of(lock: Path) -> Holding | None:
    """Who holds the lock of a corpus, or None."""
    holder = holder_of(lock)
    if holder is None:
        return None
    record = read_run(lock.parent / "runs", holder.run_id)
    return Holding(job_id=lock.parents[3].name, holder=holder, record=record)


def holdings(workspace: Workspace) -> list[Holding]:
    """Every lock that is held in the workspace. Takes none, and disturbs no holder."""
    locks = sorted(workspace.checkpoints.glob("*/seed-*/corpora/*/lock"))
    return [found for lock in locks if (found := holding_of(lock)) is not None]


def take_lock(paths: CorpusPaths, run_id: str, *, barrier: Path) -> RunLock:
    """The lock of a corpus. Raises LockedError that tells who has it, since when, and how far it is."""
    try:
        return RunLock(paths.lock, run_id, barrier=barrier)
    except LockedError as error:
        held = holding_of(paths.lock)
        if held is None or held.record is None:
            raise
        raise LockedError(f"{error.reason}: {how_far(held.record)}", error.hint) from None


def percent_done(record: RunRecord) -> float:
    """Of the documents that the run is to compute, in tenths, rounded down: what is not all is never 100."""
    if record.rows.computed >= record.to_run:
        return 0.0 if record.first_planned_at is None else 100.0
    return 1000 * record.rows.computed // record.to_run / 10


def how_far(record: RunRecord) -> str:
    """`3,200 of 10,000 documents done (32%), about 12 min left`, of a run that goes on."""
    done, to_run, left = record.rows.computed, record.to_run, record.metrics.seconds_to_completion
    if record.first_planned_at is None:
        return "it plans its corpus"
    if done >= to_run:
        return f"all of its {to_run:,} documents are done, it publishes"
    if record.engine is None:
        return f"it loads the model for {to_run:,} documents"
    told = f"{done:,} of {to_run:,} documents done ({int(percent_done(record))}%)"
    if left is not None:
        told += f", about {duration(left)} left"
    silent = seconds_since(record.updated_at)
    return told if silent < SILENT_SECONDS else f"{told}; no word of it for {duration(silent)}"
