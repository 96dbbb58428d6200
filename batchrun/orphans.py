"""Orphans: processes of engines whose run is over, that still hold memory. They are named and never killed: only a
person knows that nothing else depends on them.

An engine's processes end with their batchrun (`engines/parent.py`), so that there is one only where the kernel could
not end it yet, or where it had not bound itself to its parent and hangs before it can.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import psutil

from batchrun.engines.base import Owner
from batchrun.engines.processes import EngineProcess, on_this_machine
from batchrun.store.lock import UNKNOWN, holder_of
from batchrun.telemetry.gpus import memory_by_process


@dataclass(frozen=True, kw_only=True)
class Orphan:
    """What is left of the engine of a run: `memory_bytes` resident, `gpu_memory_bytes` where NVML tells."""

    run_id: str
    process_ids: tuple[int, ...]
    memory_bytes: int
    gpu_memory_bytes: int | None = None

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.process_ids))
        held = f"{self.memory_bytes / 2**30:,.2f} GiB of memory"
        if self.gpu_memory_bytes is not None:
            held += f" and {self.gpu_memory_bytes / 2**30:,.2f} GiB of GPU memory"
        return f"the engine of run {self.run_id}, which is over, still holds {held} (process {numbers})"

    @property
    def hint(self) -> str:
        """What ends it."""
        return f"If nobody needs it: kill -9 {' '.join(map(str, self.process_ids))}"


def orphans(of: Owner | None = None) -> list[Orphan]:
    """Those of this user on this machine, a record for each run. `of`: the run that asks, which holds its lock.

    A process counts where its environment says for which run it was started, the process that started it is not
    above it any more, and no living process holds the lock of that run for it. It takes about 0.05 s per
    hundred processes of the machine.
    """
    found = sorted(filter(lambda one: _is_over(one, of), on_this_machine()), key=lambda one: one.owner.run_id)
    on_gpus = memory_by_process() if found else {}
    return [_orphan(run, list(each), on_gpus) for run, each in groupby(found, lambda one: one.owner.run_id)]


def _is_over(one: EngineProcess, of: Owner | None) -> bool:
    return not one.has_starter and not _is_held(one.owner.lock, one.owner.run_id, of)


def _is_held(lock: Path, run_id: str, of: Owner | None) -> bool:
    if of is not None and lock == of.lock:
        return run_id == of.run_id
    try:
        holder = holder_of(lock)
    except OSError:  # on a file system that is gone: of a run there nothing is known
        return True
    return holder is not None and holder.run_id in (run_id, UNKNOWN)


def _orphan(run_id: str, processes: Iterable[EngineProcess], on_gpus: dict[int, int]) -> Orphan:
    process_ids = tuple(one.process.pid for one in processes)
    held = [on_gpus[process_id] for process_id in process_ids if process_id in on_gpus]
    return Orphan(
        run_id=run_id,
        process_ids=process_ids,
        memory_bytes=sum(map(_resident, process_ids)),
        gpu_memory_bytes=sum(held) if held else None,
    )


def _resident(process_id: int) -> int:
    try:
        return int(psutil.Process(process_id).memory_info().rss)
    except psutil.Error:
        return 0
