"""Times of requests of two runs beside each other, by length of input."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from batchrun.database import Database, literal, statements
from batchrun.insight.bootstrap import Statistic, compare, mean, plain, quantile
from batchrun.insight.exclusions import Exclusion
from batchrun.insight.figures import Figure, of_difference, of_shares
from batchrun.insight.percentiles import LENGTH_EDGES, LENGTHS
from batchrun.insight.proportions import Share
from batchrun.insight.stretches import Floats, Integers, singles, stretches_of

MOST_REQUESTS = 20_000
"""Of a group and side: more make no interval narrower that anyone could see."""
PAIRED_FROM = 0.5
"""Share of the finished requests of both sides from which only pairs of one text are compared."""

FEWEST_FOR_P95 = 100
"""Values: of fewer, five are the whole tail."""

STATISTICS: dict[str, tuple[str, Statistic, int]] = {
    "queue_p50": ("queue_ms", quantile(0.5), 1),
    "ttft_p50": ("ttft_ms", quantile(0.5), 1),
    "ttft_p95": ("ttft_ms", quantile(0.95), FEWEST_FOR_P95),
    "tpot_p50": ("tpot_ms", quantile(0.5), 1),
    "itl_p95": ("itl_p95", quantile(0.5), 1),
    "output_tokens": ("output_tokens", mean, 1),
}
"""By metric: the column of a sample, what is told of it, and from how many values it is judged."""
COLUMNS = tuple(dict.fromkeys(column for column, _, _ in STATISTICS.values()))
MOMENTS = ("finished_s", "decode_ms")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Finished requests of a group by column, NaN where the engine does not say: `COLUMNS`, and `MOMENTS`, which say
    when they ran.
    """

    values: Mapping[str, Floats]

    def stretches(self, column: str, known: npt.NDArray[np.bool_]) -> Integers:
        """Of the known values of a column, by the time that each of them measured: until the first token, or from
        there to the last. How long an output is depends on no other request.
        """
        if column == "output_tokens":
            return singles(int(known.sum()))
        ends, decode, ttft, queue = (self.values[name][known] for name in (*MOMENTS, "ttft_ms", "queue_ms"))
        first = ends - decode / 1000
        if column not in ("ttft_ms", "queue_ms"):
            return stretches_of(first, ends)
        queued = first - ttft / 1000
        return stretches_of(queued, first if column == "ttft_ms" else queued + queue / 1000)


def group_figures(group: str, a: Sample, b: Sample, *, is_paired: bool) -> list[Figure]:
    """Of those of `STATISTICS` that both sides have a value for, or one has."""
    found = []
    for metric, (column, statistic, fewest) in STATISTICS.items():
        known = [~np.isnan(side.values[column]) for side in (a, b)]
        if is_paired:
            known = [known[0] & known[1]] * 2
        left, right = (side.values[column][each] for side, each in zip((a, b), known, strict=True))
        if not (len(left) or len(right)):
            continue
        figure = Figure(
            metric=metric,
            group=group,
            a=plain(statistic, left) if len(left) else None,
            b=plain(statistic, right) if len(right) else None,
            num_a=len(left),
            num_b=len(right),
            is_paired=is_paired,
        )
        if min(len(left), len(right)) >= fewest:
            stretches = a.stretches(column, known[0]), b.stretches(column, known[1])
            difference = compare(statistic, left, right, stretches, is_paired=is_paired)
            figure = of_difference(figure, difference) if difference else figure
        found.append(figure)
    return found


def request_figures(a: list[Path], b: list[Path], scratch: Path) -> tuple[list[Figure], list[Exclusion]]:
    """Of the requests in files of request telemetry, and what was left out. Raises DatabaseError."""
    with Database(scratch) as database:
        requests = _Requests(database, (a, b))
        figures, left_out = [], []
        for length in requests.lengths:
            found, excluded = requests.compare(length)
            figures += found
            left_out += excluded
        return figures, left_out


class _Requests:
    """Both sides' in one database."""

    def __init__(self, database: Database, sides: tuple[list[Path], list[Path]]) -> None:
        self._database = database
        self._named = statements(__package__)
        self._execute("create_compared_requests")
        for side, files in enumerate(sides):
            if files:
                self._execute(
                    "add_compared_requests",
                    side=side,
                    files=[literal(path) for path in files],
                    edges=LENGTH_EDGES,
                )
        counted = self._execute("count_compared_requests").fetchall()
        self._counts = {(length, side): (number, failed) for length, side, number, failed in counted}
        self._execute("create_request_pairs")
        self._pairs: dict[int, int] = dict(self._execute("count_request_pairs").fetchall())

    @property
    def lengths(self) -> list[int]:
        return sorted({length for length, _ in self._counts})

    def compare(self, length: int) -> tuple[list[Figure], list[Exclusion]]:
        group = LENGTHS[length]
        counts = [self._counts.get((length, side), (0, 0)) for side in (0, 1)]
        finished = [number - failed for number, failed in counts]
        pairs = self._pairs.get(length, 0)
        is_paired = pairs > 0 and pairs >= PAIRED_FROM * max(finished)
        shares = [Share(number=failed, of=number) for number, failed in counts]
        figures = [of_shares("requests_failed", *shares, group=group)]
        a, b = self._paired(length) if is_paired else (self._of(length, 0), self._of(length, 1))
        figures += group_figures(group, a, b, is_paired=is_paired)
        return figures, _left_out(group, shares, pairs if is_paired else None)

    def _paired(self, length: int) -> tuple[Sample, Sample]:
        rows = self._arrays("request_pairs_of", length=length)
        a, b = (
            Sample(values={name: rows[f"{name}_{side}"] for name in (*COLUMNS, *MOMENTS)}) for side in "ab"
        )
        return a, b

    def _of(self, length: int, side: int) -> Sample:
        return Sample(values=self._arrays("requests_of", length=length, side=side))

    def _arrays(self, name: str, **parameters: int) -> dict[str, Floats]:
        table = self._database.read(
            self._named[name], parameters | {"most": MOST_REQUESTS}, MOST_REQUESTS
        ).read_all()
        return {
            column: table[column].to_numpy().astype(np.float64)
            for column in table.column_names
            if column not in ("length", "lot")
        }

    def _execute(self, name: str, **parameters: Any) -> Any:
        return self._database.connection.execute(self._named[name], parameters or None)


def _left_out(group: str, shares: list[Share], pairs: int | None) -> list[Exclusion]:
    found = []
    for side, share in zip("AB", shares, strict=True):
        finished = share.of - share.number
        compared = finished if pairs is None else pairs
        found += [
            Exclusion(
                of=f"times of {group}", side=side, number=share.number, total=share.of, reason="they failed"
            ),
            Exclusion(
                of=f"times of {group}",
                side=side,
                number=max(0, finished - compared),
                total=share.of,
                reason="the other side has none of the same text",
            ),
            Exclusion(
                of=f"times of {group}",
                side=side,
                number=max(0, compared - MOST_REQUESTS),
                total=share.of,
                reason=f"{MOST_REQUESTS:,} are drawn by their hash",
            ),
        ]
    return [one for one in found if one.number]


def retried(files: list[Path], scratch: Path) -> Share:
    """Documents that ended in an attempt after the first, of all in files of request telemetry."""
    if not files:
        return Share(number=0, of=0)
    with Database(scratch) as database:
        sql = statements(__package__)["num_retried"]
        number, of = database.one(sql, {"files": [literal(path) for path in files]})
    return Share(number=number, of=of)
