"""When a request of vLLM's was queued, scheduled, and gave its first and last token; and the gaps between.

vLLM keeps four moments of every request, and no gap between two tokens: its IterationStats has a step's
gaps without saying whose they are. A request that is asked for cumulative outputs comes back from every
step that gave it a token, with the step's moment. For all requests that is 15 µs a token beside the 23 that
vLLM's handling of outputs takes anyway, 2.9 % of the tiny Llama's steps; so one request in `SAMPLED_EVERY` is
asked for it, at 1.3 µs a token and 0.25 %, and the others are returned once, at their end (two slow cores,
30 November 2026; `python -m benchmarks.request_times`).
"""

from collections.abc import Collection
from typing import Any

from batchrun.engines.base import itl_percentiles
from batchrun.records import RequestTimes

SAMPLED_EVERY = 16


class _Gaps:
    """Seconds between the tokens of one request."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._last_at = 0.0
        self._num_tokens = 0

    def add(self, stats: Any) -> None:
        """A step that gave n tokens, as speculation does, counts as n gaps of an n-th of its time."""
        num_new = stats.num_generation_tokens - self._num_tokens
        if num_new > 0 and self._num_tokens:
            self.seconds += [(stats.last_token_ts - self._last_at) / num_new] * num_new
        self._last_at, self._num_tokens = stats.last_token_ts, stats.num_generation_tokens


class Times:
    """The times of the requests in flight. One in SAMPLED_EVERY has inter-token times, the first among them; or
    every one, and its single gaps, where these are to be kept.
    """

    def __init__(self, every: int = SAMPLED_EVERY, *, keeps_gaps: bool = False) -> None:
        self._every = 1 if keeps_gaps else every
        self._keeps_gaps = keeps_gaps
        self._num_begun = 0
        self._gaps: dict[str, _Gaps] = {}

    def begin(self, request_id: str) -> bool:
        """Whether this request has to be returned from every step."""
        sampled = self._num_begun % self._every == 0
        self._num_begun += 1
        if sampled:
            self._gaps[request_id] = _Gaps()
        return sampled

    def see(self, output: Any) -> None:
        """Take a RequestOutput; of a request without inter-token times there is nothing to take."""
        gaps = self._gaps.get(output.request_id)
        if gaps is not None and output.metrics is not None:
            gaps.add(output.metrics)

    def forget(self, request_ids: Collection[str]) -> None:
        for request_id in request_ids:
            self._gaps.pop(request_id, None)

    def end(self, output: Any) -> RequestTimes | None:
        """The times of a finished request; None where vLLM lacks one, as of a request that never ran.

        The inter-token times are percentiles, interpolated between the nearest two, of what lies between
        the first step that gave tokens and the last, waiting after a preemption included.
        """
        gaps, stats = self._gaps.pop(output.request_id, None), output.metrics
        if stats is None or not (
            stats.queued_ts and stats.scheduled_ts and stats.first_token_ts and stats.last_token_ts
        ):
            return None
        seconds = gaps.seconds if gaps else []
        p50, p95 = itl_percentiles(seconds)
        return RequestTimes(
            queued_at=stats.queued_ts,
            scheduled_at=stats.scheduled_ts,
            first_token_at=stats.first_token_ts,
            last_token_at=stats.last_token_ts,
            itl_p50=p50,
            itl_p95=p95,
            token_gaps=tuple(seconds) if self._keeps_gaps else (),
            num_preemptions=stats.num_preemptions,
        )
