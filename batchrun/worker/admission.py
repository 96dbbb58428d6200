"""How much the engine is given at once: sequences it can run, in KV cache it can hold.

vLLM admits a request by its present length, and preempts and recomputes when outputs grow; so blocks
are reserved here for the whole of a request, its longest output included.
"""

from batchrun.engines.base import EngineLimits
from batchrun.records import Request

QUEUE_SHARE = 0.125
"""Of `max_num_seqs`, waiting in the engine behind what runs, so that a step is not short of work."""
MIN_QUEUE = 8
PADDED_WINDOW = 16
"""Batches that a padded engine may choose each of its batches from, so that lengths in it are alike."""


class Admission:
    """Reservations of what is in the engine. For one thread.

    A padded engine gives memory to a batch when it begins; it is given the window that it chooses from.
    """

    def __init__(self, limits: EngineLimits) -> None:
        self._block_size = limits.block_size
        if limits.pads:
            self._num_blocks = PADDED_WINDOW * limits.max_num_batched_tokens // limits.block_size
            self._max_requests = PADDED_WINDOW * limits.max_num_seqs
        else:
            self._num_blocks = limits.kv_tokens // limits.block_size
            self._max_requests = limits.max_num_seqs + max(MIN_QUEUE, int(limits.max_num_seqs * QUEUE_SHARE))
        self._reserved: dict[str, int] = {}
        self.reserved_blocks = 0

    def admits(self, request: Request) -> bool:
        """Whether there is room. What is larger than the whole cache is let in alone: the engine refuses it."""
        if not self._reserved:
            return True
        if len(self._reserved) >= self._max_requests:
            return False
        return self.reserved_blocks + self._blocks(request) <= self._num_blocks

    def reserve(self, request: Request) -> None:
        blocks = self._blocks(request)
        self._reserved[request.request_id] = blocks
        self.reserved_blocks += blocks

    def release(self, request_id: str) -> None:
        self.reserved_blocks -= self._reserved.pop(request_id)

    def _blocks(self, request: Request) -> int:
        return -(-(len(request.prompt_token_ids) + request.max_tokens) // self._block_size)
