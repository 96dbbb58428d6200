"""The processes of engines, known by what was in their environment when they were started: also those of an engine
that is still loading, and of one whose batchrun is gone.
"""

import contextlib
import json
import multiprocessing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from batchrun.engines import parent
from batchrun.engines.base import Owner


@dataclass(frozen=True, kw_only=True)
class EngineProcess:
    """`starter`: the id of the batchrun process that began the engine; `errors`: the file of what it logs as errors."""

    process: psutil.Process
    owner: Owner
    starter: int
    errors: Path | None

    @property
    def has_starter(self) -> bool:
        """Whether it still stands below the process that began it: the kernel takes it away when that ends. True of
        one that has ended itself.
        """
        with contextlib.suppress(psutil.Error):
            return self.starter in [above.pid for above in self.process.parents()]
        return True

    def last_error(self) -> str | None:
        """What it, or another process of the same engine, said last of what went wrong."""
        told = [error["said"] for error in read_errors(self.errors) if error["said"]] if self.errors else []
        return told[-1] if told else None

    def kill(self) -> None:
        """SIGKILL, of which it may be dead already."""
        with contextlib.suppress(psutil.Error):
            self.process.kill()


def mark(owner: Owner) -> dict[str, str]:
    """What stands in the environment of an engine's processes."""
    return {parent.RUN_ID: owner.run_id, parent.RUN_LOCK: str(owner.lock)}


def on_this_machine() -> Iterator[EngineProcess]:
    """All whose environment may be read, which are those of the same user; none in other containers, where process
    ids and paths are other ones. Only where there is a /proc.
    """
    return _engines(process for process in psutil.process_iter() if _shares_ids(process.pid))


def started_here(run_id: str) -> list[EngineProcess]:
    """Those that this process started for a run, with all below them."""
    with contextlib.suppress(psutil.Error):
        begun = {child.pid for child in multiprocessing.active_children()}
        here = psutil.Process()
        roots = [child for child in here.children() if child.pid in begun]
        trees = [process for root in roots for process in (root, *_below(root))]
        return [found for found in _engines(trees) if found.owner.run_id == run_id]
    return []


def _below(root: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return list(root.children(recursive=True))
    return []


def _engines(processes: Iterable[psutil.Process]) -> Iterator[EngineProcess]:
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            if (found := _engine(process, process.environ())) is not None:
                yield found


def _engine(process: psutil.Process, environment: dict[str, str]) -> EngineProcess | None:
    run_id, lock = environment.get(parent.RUN_ID), environment.get(parent.RUN_LOCK)
    starter, errors = environment.get(parent.PARENT_PID, ""), environment.get(parent.ERRORS_FILE)
    if not (run_id and lock and starter.isdigit()) or process.pid == int(starter):
        return None
    return EngineProcess(
        process=process,
        owner=Owner(run_id=run_id, lock=Path(lock)),
        starter=int(starter),
        errors=Path(errors) if errors else None,
    )


def _shares_ids(process_id: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process_id}/ns/pid").readlink() == Path("/proc/self/ns/pid").readlink()
    return False


def read_errors(path: Path) -> list[dict[str, str]]:
    """What engines logged (`parent.ErrorsFile`), oldest first; a line that is being written is left out."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [json.loads(line) for line in lines if line.endswith("}")]
