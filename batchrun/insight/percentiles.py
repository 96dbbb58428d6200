"""Times of requests by length of input and by how many ran beside them: never one figure for all.

For diagnosis alone; nothing here is a gauge or a signal of the job.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchrun.database import Database, literal, statements

LENGTHS = ("0–1K", "1K–8K", "8K–32K", "32K+")
"""Of input tokens, half-open."""
LENGTH_EDGES = (1024, 8192, 32768)
"""Between them."""
SUFFIXES_OF_TIMES = ("_ms", "_p50", "_p95")


@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """Milliseconds."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, kw_only=True)
class Group:
    """Requests of one length of input (None: of any), and so many running when they ended (None: any).

    `tpot_ms` is the mean time of an output token after the first; `itl_p50` and `itl_p95` are those within a
    request. None: no request of the group has it. `num_queue` of them have a `queue_ms`, and so on.
    """

    length: str | None
    concurrency: str | None
    num_requests: int
    num_queue: int
    num_prefill: int
    num_ttft: int
    num_tpot: int
    num_itl: int
    input_tokens: float
    output_tokens: float
    queue_ms: Quantiles | None
    prefill_ms: Quantiles | None
    ttft_ms: Quantiles | None
    tpot_ms: Quantiles | None
    itl_p50: Quantiles | None
    itl_p95: Quantiles | None

    def num_of(self, name: str) -> int:
        """Requests that a percentile is of, by the name of its field."""
        number: int = getattr(self, f"num_{name.split('_', maxsplit=1)[0]}")
        return number


def concurrency_label(power: int) -> str:
    """`1`, `2`, `3–4`, `5–8`: sequences, by doubling."""
    lowest, highest = (1 << power - 1) + 1 if power else 1, 1 << power
    return str(highest) if lowest == highest else f"{lowest}–{highest}"


def percentiles(files: list[Path], scratch: Path) -> list[Group]:
    """Of the requests in files of request telemetry that did not fail: by length, by concurrency, by both.

    Percentiles are those of a t-digest: within 2 %, in the same memory for any number of requests. Raises DatabaseError
    where a file can not be read.
    """
    if not files:
        return []
    with Database(scratch) as database:
        sql = statements(__package__)["percentiles"]
        asked = {"files": [literal(path) for path in files], "edges": LENGTH_EDGES}
        found = database.connection.execute(sql, asked).fetchall()
    return [_group(*row) for row in found]


def _group(length: int | None, power: int | None, *rest: Any) -> Group:
    values = dict(zip(list(Group.__dataclass_fields__)[2:], rest, strict=True))
    spreads: dict[str, Any] = {
        name: _quantiles(value) if name.endswith(SUFFIXES_OF_TIMES) else value
        for name, value in values.items()
    }
    return Group(
        length=None if length is None else LENGTHS[length],
        concurrency=None if power is None else concurrency_label(power),
        **spreads,
    )


def _quantiles(found: list[float] | None) -> Quantiles | None:
    return None if found is None else Quantiles(p50=found[0], p95=found[1], p99=found[2])
