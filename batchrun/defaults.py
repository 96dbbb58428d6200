"""What is meant where a person does not say it: the spec's file, and where summaries go."""

import os
from pathlib import Path

from batchrun.corpus.formats import COMPRESSIONS
from batchrun.errors import UsageError
from batchrun.workspace import Workspace


def spec_path(space: Workspace, given: str | None) -> Path:
    """The spec's file: as given, or of that name in `jobs/`."""
    if given is None:
        return space.jobs / "summarize.toml"
    in_jobs = space.jobs / f"{given.removesuffix('.toml')}.toml"
    return in_jobs if not Path(given).exists() and in_jobs.exists() else Path(given)


def output_path(given: str | None, inputs: list[str], seed: int, limit: int | None) -> Path:
    """Where the summaries go: as given, or beside a single input. Raises UsageError."""
    if given is not None:
        return Path(given).absolute()
    if "-" in inputs:
        raise UsageError(
            "standard input needs an output path", "Say where the summaries go: -o summaries.parquet"
        )
    single = Path(os.path.abspath(inputs[0]))
    if len(inputs) > 1 or not single.exists():
        if len(inputs) == 1 and not any(character in inputs[0] for character in "*?["):
            return single.with_suffix(".summaries.parquet")  # not there: said where it is looked for
        raise UsageError(
            "several inputs, or a pattern, need an output path",
            "Say where the summaries go: -o summaries.parquet",
        )
    stem = _stem(single) if single.is_file() else single.name
    marks = (f".limit-{limit}" if limit is not None else "") + (f".seed-{seed}" if seed else "")
    return single.parent / f"{stem}{marks}.summaries.parquet"


def _stem(file: Path) -> str:
    """The name without its ending, and without that of compression."""
    return Path(file.stem).stem if file.suffix.lower() in COMPRESSIONS else file.stem
