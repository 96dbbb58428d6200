"""The loop of the engine's thread: admission, add, step, and nothing else between the steps."""

import time
from collections.abc import Callable, Sequence
from threading import Event

from batchrun.engines.base import Engine
from batchrun.records import Request
from batchrun.worker.feeder import ENDS_OF_OUTPUTS, Feeder
from batchrun.worker.residency import Slice
from batchrun.worker.tally import FeedingTally

NextRequests = Callable[[bool], Sequence[Request] | None]
"""More requests; waits for some where it is told so. Empty: none yet. None: there will be no more."""


class Driver:
    """Runs an engine until there is no more to come or `stop` is set. Once `is_closing` is set it is given nothing
    more, and runs what it has to its end. Raises EngineDeadError.
    """

    def __init__(
        self,
        engine: Engine,
        feeder: Feeder,
        next_requests: NextRequests,
        hand_over: Callable[[list[Slice]], None],
        stop: Event,
        is_closing: Event | None = None,
        tally: FeedingTally | None = None,
    ) -> None:
        """`tally` goes on counting, where an engine follows another."""
        self._engine = engine
        self._feeder = feeder
        self._next_requests = next_requests
        self._hand_over = hand_over
        self._stop = stop
        self._is_closing = is_closing or Event()
        self._added_at: dict[str, float] = {}  # time.monotonic() of what is in the engine
        self._is_own_process = bool(engine.process_ids)
        self._adding_seconds = 0.0  # the engine's own work
        self._num_steps = 0  # of this engine
        self.num_ended = 0
        self.tally = tally or FeedingTally()

    @property
    def stay_seconds(self) -> float:
        """The longest that one of the last requests was in the engine: what runs takes no longer to end."""
        stays, added = list(self.tally.stays), list(self._added_at.values())
        return max(stays) if stays else time.monotonic() - min(added, default=time.monotonic())

    def run(self, is_more: Callable[[], bool]) -> None:
        """`is_more`: whether there is work left that is not yet given to the feeder."""
        stepped_at = time.monotonic()
        while not self._stop.is_set():
            was_busy, added = self._engine.has_unfinished(), self._adding_seconds
            if not self._fill():
                return
            if not (self._is_own_process and was_busy):
                between = time.monotonic() - stepped_at
                self.tally.idle_seconds += between - (self._adding_seconds - added)
            is_hungry = self._feeder.is_hungry and is_more()
            completions = self._engine.step()
            stepped_at = time.monotonic()
            slices = [self._feeder.take(completion) for completion in completions]
            self.num_ended += sum(one.finish_reason in ENDS_OF_OUTPUTS for one in completions)
            self.tally.stays.extend(stepped_at - self._added_at.pop(one.request_id) for one in completions)
            self._count(is_hungry)
            if slices:
                self.tally.num_slices += sum(not one.is_last for one in slices)
                self._hand_over(slices)

    def _fill(self) -> bool:
        """Give the engine what it has room for; whether there is anything to step for."""
        while not self._is_closing.is_set():
            if self._feeder.wants_more:
                more = self._next_requests(not (self._engine.has_unfinished() or self._feeder.num_further))
                if more is None:
                    return self._engine.has_unfinished()  # something only where it closes
                self._feeder.offer(more)
            request = self._feeder.next_request()
            if request is None:
                return True
            started = time.monotonic()
            self._engine.add(request)
            self._added_at[request.request_id] = started
            self._adding_seconds += time.monotonic() - started
        return self._engine.has_unfinished()

    def _count(self, is_hungry: bool) -> None:
        """Of the steps since the last look. Where an engine makes several at a time only the last is known."""
        snapshot = self._engine.snapshot()
        self._feeder.advance(snapshot)
        num_new = snapshot.num_steps - self._num_steps
        self._num_steps = snapshot.num_steps
        self.tally.kv_cache_usage_max = max(self.tally.kv_cache_usage_max, snapshot.kv_cache_usage)
        self.tally.num_steps += num_new
        is_short = snapshot.step_tokens < self._engine.limits.max_num_batched_tokens
        if is_hungry and is_short and num_new and self._engine.has_unfinished():
            self.tally.starved_steps += 1
