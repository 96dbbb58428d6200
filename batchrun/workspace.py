"""Where everything lies: the three folders of a workspace, and the paths below them."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import xxhash

from batchrun.errors import ConfigError
from batchrun.shard import Shard


@dataclass(frozen=True, kw_only=True)
class CorpusPaths:
    """The files of one corpus of one job and seed; whoever holds `lock` may write them."""

    checkpoint: Path
    spool: Path

    @property
    def plan(self) -> Path:
        return self.checkpoint / "plan.parquet"

    @property
    def carried(self) -> Path:
        return self.checkpoint / "carried.parquet"

    @property
    def plan_record(self) -> Path:
        return self.checkpoint / "plan.json"

    @property
    def retired(self) -> Path:
        """Says that the plan was taken away on purpose, by `gc`."""
        return self.checkpoint / "retired.json"

    def plan_before(self, run_id: str) -> Path:
        """The plan of a completed run, kept while a newer plan of the same corpus is run."""
        return self.checkpoint / f"before-{run_id}.parquet"

    @property
    def lock(self) -> Path:
        return self.checkpoint / "lock"

    @property
    def runs(self) -> Path:
        return self.checkpoint / "runs"

    @property
    def timelines(self) -> Path:
        """How the batch completion metrics of each run went, a small file each."""
        return self.checkpoint / "timelines"

    @property
    def requests(self) -> Path:
        """Request telemetry, a file a run: for diagnosis, and nobody misses it."""
        return self.checkpoint / "requests"


@dataclass(frozen=True, kw_only=True)
class JobPaths:
    """The files of one job and seed."""

    job: Path
    spools: Path
    seed: int

    @property
    def job_record(self) -> Path:
        return self.job / "job.json"

    @property
    def seed_folder(self) -> Path:
        return self.job / f"seed-{self.seed}"

    @property
    def segments(self) -> Path:
        return self.seed_folder / "segments"

    @property
    def corpora(self) -> Path:
        return self.seed_folder / "corpora"

    @property
    def damaged(self) -> Path:
        """Segments that did not hold their bytes, set aside."""
        return self.seed_folder / "damaged"

    @property
    def collection_lock(self) -> Path:
        """Held while memo rows are taken away: no run begins meanwhile."""
        return self.seed_folder / "gc.lock"

    @property
    def scratch(self) -> Path:
        """Where DuckDB spills; nothing in it outlives a run."""
        return self.spools / f"seed-{self.seed}" / "scratch"

    def corpus(self, corpus_id: str) -> CorpusPaths:
        return CorpusPaths(
            checkpoint=self.corpora / corpus_id, spool=self.spools / f"seed-{self.seed}" / corpus_id
        )

    def seeds(self) -> list[int]:
        """Those with a folder; a copy that somebody made beside it is none."""
        found = (
            re.fullmatch(r"seed-(-?\d+)", path.name) for path in self.job.glob("seed-*") if path.is_dir()
        )
        return sorted(int(match[1]) for match in found if match)


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """`jobs/`, `buckets/` and `checkpoints/` below `home`."""

    home: Path

    @property
    def jobs(self) -> Path:
        return self.home / "jobs"

    @property
    def checkpoints(self) -> Path:
        return self.home / "checkpoints"

    @property
    def buckets(self) -> Path:
        return self.home / "buckets"

    @property
    def models_record(self) -> Path:
        """Hub revisions as first resolved, and content hashes of model folders."""
        return self.checkpoints / "models.json"

    @property
    def profiles(self) -> Path:
        """How fast engines are on this machine, as `calibrate` measured them: a file each."""
        return self.checkpoints / "profiles"

    def job(self, job_id: str, seed: int) -> JobPaths:
        return JobPaths(job=self.checkpoints / job_id, spools=self.buckets / job_id, seed=seed)

    def corpora_of(self, job_id: str) -> list[Path]:
        """The folders of a job's corpora, over its seeds."""
        seeds = self.job(job_id, 0).seeds()
        return [path for seed in seeds for path in sorted(self.job(job_id, seed).corpora.glob("*"))]

    def job_ids(self) -> list[str]:
        return sorted(path.parent.name for path in self.checkpoints.glob("*/job.json"))

    def find_job(self, given: str) -> str:
        """The job id that `given` is, or is the only beginning of. Raises ConfigError."""
        job_ids = self.job_ids()
        matches = [given] if given in job_ids else [job_id for job_id in job_ids if job_id.startswith(given)]
        if len(matches) == 1:
            return matches[0]
        if not job_ids:
            raise ConfigError(
                f"there is no job {given!r}: {self.checkpoints} has none yet",
                "Submit a corpus first, or give another workspace with --home.",
            )
        reason = (
            f"job {given!r} is ambiguous" if matches else f"there is no job {given!r} in {self.checkpoints}"
        )
        known = ", ".join(matches or job_ids)
        raise ConfigError(f"{reason}: {known}", "Give one of these ids, or another workspace with --home.")


def find_workspace(home: str | None, environment: Mapping[str, str] = os.environ) -> Workspace:
    """The workspace by option, by BATCHRUN_HOME, or the nearest folder upwards that holds `jobs/`."""
    named = home or environment.get("BATCHRUN_HOME")
    if named:
        return Workspace(home=Path(os.path.expanduser(named)).absolute())
    here = Path.cwd()
    nearest = (folder for folder in (here, *here.parents) if (folder / "jobs").is_dir())
    return Workspace(home=next(nearest, here))


def corpus_id(inputs: list[str], limit: int | None, shard: Shard | None = None) -> str:
    """A short hash of the input paths as given, made absolute, of the limit on rows, and of the shard."""
    parts = [os.path.abspath(path) for path in inputs] + ([f"limit={limit}"] if limit is not None else [])
    parts += [f"shard={shard}"] if shard is not None else []
    return xxhash.xxh3_64_hexdigest("\0".join(parts).encode(errors="surrogateescape"))[:10]
