"""Cells of the matrix that `batchrun bench` measures, and what came of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from batchrun.insight.percentiles import Quantiles


class CacheState(StrEnum):
    """Of the prefix cache, at a cell's start. `COLD`: nothing of any prompt is in it. `WARM`: every prompt was
    read just before. `REPEATED_PREFIX`: the first three quarters of all prompts are one text, read just before,
    and the rest of each is its own.
    """

    COLD = "cold"
    WARM = "warm"
    REPEATED_PREFIX = "repeated-prefix"

    @property
    def text(self) -> str:
        return self.value.replace("-", " ")


class CellStatus(StrEnum):
    """`PARTIAL`: the time was over, or a signal came, while it was measured. `PENDING`: not begun."""

    MEASURED = "measured"
    PARTIAL = "partial"
    SKIPPED = "skipped"
    FAILED = "failed"
    PENDING = "pending"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """`input_tokens` and `output_tokens` of every request, `concurrency` of them in the engine at any time."""

    input_tokens: int
    output_tokens: int
    concurrency: int
    cache: CacheState

    @property
    def text(self) -> str:
        """`8K in, 64 out, 8 at once, cold`."""
        read, written = size_text(self.input_tokens), size_text(self.output_tokens)
        return f"{read} in, {written} out, {self.concurrency:,} at once, {self.cache.text}"


@dataclass(frozen=True, kw_only=True)
class MeasuredRequest:
    """Milliseconds by the engine's clock; None, and no `itl_ms`, of one that failed. `itl_ms`: between each two
    tokens. `num_output`: tokens that came. `running`: sequences in the step that ended it. `finished_s`: seconds
    since the cell's start.
    """

    queue_ms: float | None = None
    prefill_ms: float | None = None
    ttft_ms: float | None = None
    decode_ms: float | None = None
    itl_ms: tuple[float, ...] = ()
    num_output: int = 0
    cached_tokens: int = 0
    running: int = 0
    preemptions: int = 0
    finished_s: float = 0.0
    error_type: str | None = None


@dataclass(frozen=True, kw_only=True)
class CellFigures:
    """Of a whole cell. `seconds` by the engine's clock; `read_tokens` of prompts that were computed and
    `written_tokens` of outputs in them; the most that was seen of the KV cache's use (a share), of running and
    of waiting sequences, of the memory of batchrun and the engine's processes, and of the GPUs' memory.
    """

    seconds: float = 0.0
    read_tokens: int = 0
    written_tokens: int = 0
    preemptions: int = 0
    kv_cache_usage_max: float = 0.0
    running_max: int = 0
    waiting_max: int = 0
    memory_bytes_max: int = 0
    gpu_memory_bytes_max: int | None = None


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """A cell, and what came of it. `reason`: why it is skipped, partial or failed."""

    cell: Cell
    status: CellStatus = CellStatus.PENDING
    reason: str | None = None
    figures: CellFigures | None = None
    requests: tuple[MeasuredRequest, ...] = ()

    @property
    def finished(self) -> list[MeasuredRequest]:
        """Requests that did not fail: those of which there are times."""
        return [request for request in self.requests if request.error_type is None]

    @property
    def num_gaps(self) -> int:
        return sum(len(request.itl_ms) for request in self.finished)

    @property
    def ttft_ms(self) -> Quantiles | None:
        """Over the requests; None without any."""
        return quantiles([one.ttft_ms for one in self.finished if one.ttft_ms is not None])

    @property
    def itl_ms(self) -> Quantiles | None:
        """Over all gaps between tokens of all requests; None without any, as of outputs of one token."""
        gaps = [np.asarray(one.itl_ms) for one in self.finished if one.itl_ms]
        return quantiles(np.concatenate(gaps)) if gaps else None

    @property
    def prefill_tokens_per_s(self) -> float | None:
        """Prompt tokens computed, over the cell's whole time, in which it also decodes."""
        return self._rate(self.figures.read_tokens) if self.figures else None

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Output tokens of all sequences together, over the cell's whole time."""
        return self._rate(self.figures.written_tokens) if self.figures else None

    def _rate(self, tokens: int) -> float | None:
        return tokens / self.figures.seconds if self.figures and self.figures.seconds > 0 else None


def size_text(tokens: int) -> str:
    """`512`, `8K`: K is 1,024."""
    return f"{tokens // 1024}K" if tokens % 1024 == 0 else f"{tokens:,}"


def quantiles(values: Sequence[float] | npt.NDArray[np.float64]) -> Quantiles | None:
    """Interpolated between the nearest two; None without values."""
    if not len(values):
        return None
    p50, p95, p99 = np.percentile(values, [50, 95, 99]).tolist()
    return Quantiles(p50=p50, p95=p95, p99=p99)
