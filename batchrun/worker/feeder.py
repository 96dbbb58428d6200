"""What the engine is given next, and when: the order of requests, and the slots that long outputs may hold."""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from batchrun.engines.base import EngineLimits, EngineSnapshot
from batchrun.records import Completion, ErrorType, FinishReason, Request
from batchrun.worker.admission import Admission
from batchrun.worker.output_prediction import OutputPrediction
from batchrun.worker.residency import Residency, Slice, Slices

MAX_FURTHER = 4
"""Times `max_num_seqs`, of outputs between two slices: where more wait, they go before what is new. They are
held in memory, prompt and all.
"""

SUSPECT_DEATHS, FATAL_DEATHS = 2, 3
"""Deaths of the engine with a request in it from which that runs alone, and from which it is given up."""
ENDS_OF_OUTPUTS = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.REPETITION)
"""Of what ends otherwise nothing is learnt about how long outputs are."""


@dataclass(frozen=True, kw_only=True)
class FeedingSettings:
    """`edges`: of the buckets of input tokens by which output lengths are predicted; `known_lengths`: input and output
    tokens of earlier runs of the job, from which they are predicted until this one's are known. How long outputs
    are is a matter of the job, not of the engine: it stands in no profile.
    """

    edges: tuple[int, ...] = ()
    residency: Residency = field(default_factory=Residency)
    known_lengths: tuple[tuple[int, int], ...] = ()


class Feeder:
    """For one thread; no engine and no clock in it. What `next_request` gives is to be added to the engine, and
    what comes out of it to be given to `take`.
    """

    def __init__(
        self,
        limits: EngineLimits,
        settings: FeedingSettings,
        seed_of: Callable[[str, int], int],
    ) -> None:
        """`seed_of`: the sampling seed of a request id and the number of a slice."""
        self._prediction = OutputPrediction(settings.edges)
        for input_tokens, output_tokens in settings.known_lengths:
            self._prediction.observe(input_tokens, output_tokens)
        self._residency = settings.residency
        self._seed_of = seed_of
        self._serve(limits)
        self._new: deque[Request] = deque()
        self._further: deque[Slices] = deque()  # between two slices
        self._running: dict[str, Slices] = {}
        self._deaths: Counter[str] = Counter()  # of the engine, with a request in it
        self._suspects: deque[Slices] = deque()  # each to run alone
        self._alone: str | None = None  # the last that did
        self._num_resident = 0  # running past their first slice
        self.num_admitted_tokens = 0  # of prompts, each once
        self.num_cached_again = 0  # tokens that further slices found in the engine's cache

    def _serve(self, limits: EngineLimits) -> None:
        """Feed an engine of these limits, which is empty."""
        self._admission = Admission(limits, self._prediction)
        self._max_further = MAX_FURTHER * limits.max_num_seqs
        self._max_resident = max(1, int(self._residency.max_share * limits.max_num_seqs))

    @property
    def num_further(self) -> int:
        """Outputs that wait for a slice after their first, or, after a death of the engine, for their first again."""
        return len(self._further) + len(self._suspects)

    @property
    def wants_more(self) -> bool:
        """Whether nothing new is left to choose from, and not more goes on than is held in memory."""
        return not self._new and len(self._further) < self._max_further

    @property
    def is_hungry(self) -> bool:
        """Whether more requests would be let into the engine if there were some."""
        return not (self._new or self._further or self._suspects or self._admission.is_full)

    def prepare(self, requests: Iterable[Request]) -> None:
        """What can be done for requests before they are offered: on any thread, beside the engine's."""
        self._admission.prepare(requests)

    def offer(self, requests: Iterable[Request]) -> None:
        """More work, behind what waits; an output that an earlier run began goes on before what is new."""
        for request in requests:
            if request.num_generated:
                self._further.append(self._slices(request))
            else:
                self._new.append(request)

    def advance(self, snapshot: EngineSnapshot) -> None:
        """Note how far the engine is."""
        self._admission.advance(snapshot)

    def next_request(self) -> Request | None:
        """The next for the engine, or None where there is none or no room for it."""
        if self._suspects or self._alone in self._running:
            return self._next_suspect()
        if self._admission.is_closed or not (self._new or self._further):
            return None
        goes_on = self._goes_on()
        slices = self._further[0] if goes_on else self._slices(self._new[0])
        request = slices.next_request()
        if not self._admission.reserve(request):
            return None
        (self._further if goes_on else self._new).popleft()
        return self._admit(slices, request)

    def _next_suspect(self) -> Request | None:
        """The next that runs with nothing beside it."""
        if self._running:
            return None
        slices = self._suspects.popleft()
        request = slices.next_request()
        self._admission.reserve(request)
        self._alone = request.request_id
        return self._admit(slices, request)

    def _admit(self, slices: Slices, request: Request) -> Request:
        self._running[request.request_id] = slices
        self._num_resident += not slices.is_first
        if not slices.was_admitted:
            slices.was_admitted = True
            self.num_admitted_tokens += len(request.prompt_token_ids)
        return request

    @property
    def in_engine(self) -> list[str]:
        """Ids of the requests in the engine; may be asked for from any thread."""
        return list(self._running)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return not (self._new or self._further or self._suspects or self._running)

    def recover(self, limits: EngineLimits) -> list[Slice]:
        """An engine died, and another is there: what was in it waits again, before all else. Returns the ends of what
        is given up: what was in the engine at FATAL_DEATHS of them.
        """
        self._serve(limits)
        in_flight, self._running, self._num_resident = list(self._running.values()), {}, 0
        self._deaths.update(slices.request_id for slices in in_flight)
        given_up = []
        for slices in reversed(in_flight):
            num_deaths = self._deaths[slices.request_id]
            if num_deaths >= FATAL_DEATHS:
                error = f"the engine died {num_deaths} times while it computed this, at last with nothing beside it"
                given_up.append(slices.give_up(ErrorType.ENGINE_CRASH, error))
            else:
                (self._suspects if num_deaths >= SUSPECT_DEATHS else self._further).appendleft(slices)
        return given_up

    def take(self, completion: Completion) -> Slice:
        """A request that the engine is done with; where its output is not whole it waits for its next slice."""
        slices = self._running.pop(completion.request_id)
        self._admission.release(completion.request_id)
        was_resident = not slices.is_first
        self._num_resident -= was_resident
        if slices.num_stays:
            self.num_cached_again += completion.cached_tokens
        ended = slices.take(completion)
        if ended.is_last:
            self._deaths.pop(completion.request_id, None)
            if completion.finish_reason in ENDS_OF_OUTPUTS:
                self._prediction.observe(ended.output.input_tokens, len(ended.output.token_ids))
        elif self._deaths[completion.request_id] >= SUSPECT_DEATHS:
            self._suspects.appendleft(slices)
        else:
            # The blocks of a resident output are warm: taking turns with the others would compute them all again.
            (self._further.appendleft if was_resident else self._further.append)(slices)
        return ended

    def _goes_on(self) -> bool:
        """Whether a further slice is next: while others wait for their first, up to a share of the slots."""
        if not self._further:
            return False
        is_within_share = self._num_resident < self._max_resident
        return is_within_share or not self._new or len(self._further) >= self._max_further

    def _slices(self, request: Request) -> Slices:
        return Slices(request, self._residency, self._seed_of)
