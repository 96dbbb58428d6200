"""What a caller asks of a run."""

from dataclasses import dataclass, field
from pathlib import Path

from batchrun.records import Preference
from batchrun.window import Window


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a run ends and what it may do; nothing here changes a summary. An output whose path nobody named is not
    put in the place of another corpus' summaries. A run of a shard has no output.
    """

    output: Path | None
    is_output_named: bool = True
    max_error_rate: float = 0.01
    accept_engine: bool = False
    retry_all: bool = False
    metrics_file: Path | None = None
    window: Window = field(default_factory=Window)
    prefer: Preference | None = None
    release: str | None = None
