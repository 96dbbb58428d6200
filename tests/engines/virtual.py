"""An engine of known rates on a clock of its own: what is measured of it can be told beforehand."""

from collections import deque
from collections.abc import Callable, Collection

from batchrun.engines.base import EngineLimits, EngineSnapshot, refusal
from batchrun.records import Completion, ErrorType, FinishReason, Request

LIMITS = EngineLimits(
    max_model_len=8192, kv_tokens=65536, block_size=16, max_num_seqs=256, max_num_batched_tokens=4096
)


class VirtualEngine:
    """Reads one prompt after the other, `prefill(length)` tokens/s, as far as `max_num_seqs` allows, which gives
    each its first token; then writes a token for all that run, `decode(running)` tokens/s. `ends` gives the
    length that the model itself gives an output.
    """

    label = "virtual"

    def __init__(
        self,
        prefill: Callable[[int], float],
        decode: Callable[[int], float],
        limits: EngineLimits = LIMITS,
        ends: Callable[[Request], int] = lambda request: request.max_tokens,
    ) -> None:
        self.limits = limits
        self.now = 1000.0
        self.served: list[Request] = []
        self.most_running = 0
        self.is_closed = False
        self._prefill, self._decode, self._ends = prefill, decode, ends
        self._waiting: deque[Request] = deque()
        self._running: dict[str, tuple[Request, list[int]]] = {}
        self._refused: list[Completion] = []
        self._read = self._written = 0

    def clock(self) -> float:
        return self.now

    @property
    def process_ids(self) -> list[int]:
        return []

    def add(self, request: Request) -> None:
        self.served.append(request)
        if len(request.prompt_token_ids) >= self.limits.max_model_len:
            self._refused.append(refusal(request, ErrorType.ENGINE_REJECTED, "too long"))
        else:
            self._waiting.append(request)

    def step(self) -> list[Completion]:
        refused, self._refused = self._refused, []
        while self._waiting and len(self._running) < self.limits.max_num_seqs:
            request = self._waiting.popleft()
            length = len(request.prompt_token_ids)
            self.now += length / self._prefill(length)
            self._read += length
            self._written += 1
            self._running[request.request_id] = (request, [1])
        done = self._take_ended()
        if self._running and not done:
            self.most_running = max(self.most_running, len(self._running))
            self.now += len(self._running) / self._decode(len(self._running))
            self._written += len(self._running)
            for _, output in self._running.values():
                output.append(1 + len(output))
            done = self._take_ended()
        return refused + done

    def _take_ended(self) -> list[Completion]:
        ended = [
            (request, output)
            for request, output in self._running.values()
            if len(output) >= min(request.max_tokens, self._ends(request))
        ]
        for request, _ in ended:
            del self._running[request.request_id]
        return [
            Completion(
                request_id=request.request_id,
                token_ids=output,
                finish_reason=FinishReason.LENGTH,
                input_tokens=len(request.prompt_token_ids),
            )
            for request, output in ended
        ]

    def abort(self, request_ids: Collection[str]) -> None:
        for request_id in request_ids:
            self._running.pop(request_id, None)

    def has_unfinished(self) -> bool:
        return bool(self._waiting or self._running or self._refused)

    def snapshot(self) -> EngineSnapshot:
        return EngineSnapshot(
            running=len(self._running),
            waiting=len(self._waiting),
            computed_tokens=self._read,
            output_tokens=self._written,
        )

    def close(self) -> None:
        self.is_closed = True
