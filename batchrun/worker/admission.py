"""How much the engine is given at once: sequences it can run, in KV cache it can hold.

vLLM admits a request by its present length, and preempts and recomputes when outputs grow. Here a request is
admitted if the cache holds all that run, now and at every time to come: the sequence with the least left to
write ends first and gives its blocks back, so the most that is ever held is the largest of the sums over the
sequences that are left then (the method of the Past-Future scheduler, Gong et al., ASPLOS 2025). A block that
several prompts begin with counts once.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from batchrun.engines.base import EngineLimits, EngineSnapshot, kv_cache_refusal
from batchrun.engines.kv_blocks import block_names
from batchrun.records import Request
from batchrun.worker.output_prediction import OutputPrediction

QUEUE_SHARE = 0.125
"""Of `max_num_seqs`, waiting in the engine behind what runs, so that a step is not short of work."""
MIN_QUEUE = 8
PADDED_WINDOW = 16
"""Batches that a padded engine may choose each of its batches from, so that lengths in it are alike."""
SPARE_SHARE = 0.065
"""Of the KV cache, for predictions that are too low. With it no sequence was preempted in the median of five
seeds; each 1 % more costs half a percent of the throughput (tests/worker/test_feeding.py has the jobs).
"""


ORPHAN = -1
"""The owner of a block that ended before others that hold it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reservation:
    slot: int
    names: list[int]  # of the prompt's full blocks
    input_tokens: int
    max_total: int  # output tokens, earlier slices among them
    num_generated: int


class Admission:
    """Reservations of what is in the engine. For one thread, but for `prepare`.

    A padded engine gives memory to a batch when it begins; it is given the window that it chooses from.
    """

    def __init__(self, limits: EngineLimits, prediction: OutputPrediction) -> None:
        self._limits = limits
        self._block_size = limits.block_size
        self._lookahead = limits.lookahead
        self._kv_tokens = limits.kv_tokens * (1 - SPARE_SHARE)
        self._max_requests = _max_requests(limits)
        self._window_tokens = PADDED_WINDOW * limits.max_num_batched_tokens if limits.pads else None
        self._is_ample = limits.pads or limits.kv_tokens >= limits.max_num_seqs * limits.max_model_len
        self._prediction = prediction
        self._reserved: dict[str, _Reservation] = {}
        self._owner: dict[
            int, int
        ] = {}  # of named blocks that are held: the slot that holds them longest, or ORPHAN
        self._holders: dict[int, int] = {}  # of those that several have held: how many do
        self._num_orphans = 0
        self._tokens_of: dict[
            str, int
        ] = {}  # of a prompt and its longest output, where blocks are not counted
        self._num_tokens = 0
        self._waits_for_release = False
        self._names: dict[str, list[int]] = {}  # of blocks of requests that are not let in yet
        self._progress = 0.0  # output tokens of a sequence that ran from the beginning
        self._num_ended = 0  # since the last look
        self._seen_output = 0
        self._free_slots = list(range(self._max_requests))
        self._prompt = np.zeros(self._max_requests)  # by slot: prompt tokens in blocks of its own
        self._start = np.zeros(self._max_requests)  # the progress at which it came
        self._predicted = np.full(self._max_requests, -np.inf)  # of output from then on; -inf: a free slot
        self._places = np.arange(1, self._max_requests + 1)

    @property
    def is_full(self) -> bool:
        """Whether as many run and wait as may."""
        return len(self._reserved) + len(self._tokens_of) >= self._max_requests

    @property
    def is_closed(self) -> bool:
        """Whether nothing is let in before something is released."""
        return self.is_full or self._waits_for_release

    @property
    def num_prompt_blocks(self) -> int:
        """Full blocks of prompts that are held, each once."""
        return len(self._owner)

    def prepare(self, requests: Iterable[Request]) -> None:
        """Name the blocks of requests to come: on any thread, so that `reserve` need not."""
        if not self._is_ample:
            for request in requests:
                self._names[request.request_id] = self._names_of(request)

    def advance(self, snapshot: EngineSnapshot) -> None:
        """Note how far sequences have come: each that ran by its share of the output tokens since the last look, also
        those that ended with it.
        """
        num_ran = max(1, snapshot.running + self._num_ended)
        self._progress += (snapshot.output_tokens - self._seen_output) / num_ran
        self._seen_output, self._num_ended = snapshot.output_tokens, 0

    def reserve(self, request: Request) -> bool:
        """Take a request in; False where there is no room.

        A prompt larger than the whole cache is let in, for the engine to refuse; one that is so with its output
        runs alone.
        """
        if self.is_closed:
            return False
        if self._is_ample or kv_cache_refusal(request, self._limits):  # of these no blocks are counted
            self._names.pop(request.request_id, None)
            return self._reserve_tokens(request)
        names, slot = self._names.get(request.request_id) or self._names_of(request), self._free_slots[-1]
        num_shared = self._num_leading(names, self._owner)
        self._set(slot, request, num_shared)
        if self._reserved and self._peak() > self._kv_tokens:
            self._predicted[slot] = -np.inf
            self._names[request.request_id] = names  # it comes again
            self._waits_for_release = True
            return False
        self._names.pop(request.request_id, None)
        self._reserved[request.request_id] = self._reservation(request, self._free_slots.pop(), names)
        self._hold(names, num_shared, slot)
        return True

    def _names_of(self, request: Request) -> list[int]:
        """None where the engine shares no blocks: all are a sequence's own."""
        if not self._limits.shares_prefixes:
            return []
        return block_names(request.prompt_token_ids, self._block_size)

    def _reserve_tokens(self, request: Request) -> bool:
        num_tokens = len(request.prompt_token_ids) + request.max_tokens
        is_wide = self._window_tokens is None or self._num_tokens + num_tokens <= self._window_tokens
        if self._tokens_of and not is_wide:
            return False
        self._num_tokens += num_tokens
        self._tokens_of[request.request_id] = num_tokens
        return True

    def release(self, request_id: str) -> None:
        """What a request held is free."""
        self._waits_for_release = False
        self._num_ended += 1
        if request_id in self._tokens_of:
            self._num_tokens -= self._tokens_of.pop(request_id)
            return
        reservation = self._reserved.pop(request_id)
        self._predicted[reservation.slot] = -np.inf
        self._free_slots.append(reservation.slot)
        self._let_go(reservation.names, reservation.slot)

    def _hold(self, names: list[int], num_shared: int, slot: int) -> None:
        """Count the blocks of a prompt as those of the sequence that is expected to be the last that holds them."""
        ends = self._start + self._predicted
        for name in names[:num_shared]:
            self._holders[name] = self._holders.get(name, 1) + 1
            before = self._owner[name]
            if before == ORPHAN:
                self._num_orphans -= 1
            elif ends[before] > ends[slot]:
                continue
            else:
                self._prompt[before] -= self._block_size
            self._prompt[slot] += self._block_size
            self._owner[name] = slot
        self._owner.update(dict.fromkeys(names[num_shared:], slot))

    def _let_go(self, names: list[int], slot: int) -> None:
        num_shared = self._num_leading(names, self._holders)
        for name in names[:num_shared]:
            self._holders[name] -= 1
            if self._owner[name] == slot:
                self._owner[name] = ORPHAN
                self._num_orphans += 1
            if not self._holders[name]:
                del self._holders[name]
                self._num_orphans -= 1
                del self._owner[name]
        for name in names[num_shared:]:
            del self._owner[name]

    @staticmethod
    def _num_leading(names: list[int], known: Container[int]) -> int:
        """How many of a prompt's blocks are known: a block's name holds all before it, so these come first."""
        return next((number for number, name in enumerate(names) if name not in known), len(names))

    def _reservation(self, request: Request, slot: int, names: list[int]) -> _Reservation:
        return _Reservation(
            slot=slot,
            names=names,
            input_tokens=len(request.prompt_token_ids) - request.num_generated,
            max_total=request.num_generated + request.max_tokens,
            num_generated=request.num_generated,
        )

    def _set(self, slot: int, request: Request, num_held: int) -> None:
        num_prompt, so_far = len(request.prompt_token_ids), request.num_generated
        self._prompt[slot] = num_prompt - num_held * self._block_size
        self._start[slot] = self._progress
        whole = self._prediction.predict(num_prompt - so_far, so_far + request.max_tokens, so_far)
        self._predicted[slot] = whole - so_far + self._lookahead

    def _peak(self) -> float:
        """The most tokens that are held at any time to come, in blocks whose last is half full in the mean."""
        num_busy = len(self._reserved) + 1  # and the one that asks
        made = self._progress - self._start
        left = self._predicted - made
        longest_first = np.argsort(-left)[:num_busy]  # free slots come last
        if left[longest_first[-1]] <= 0:
            self._predict_again(made)
            left = self._predicted - made
            longest_first = np.argsort(-left)[:num_busy]
        held = self._prompt[longest_first] + made[longest_first]
        sums = np.cumsum(held) + (left[longest_first] + self._block_size / 2) * self._places[:num_busy]
        return float(sums.max()) + self._num_orphans * self._block_size

    def _predict_again(self, made: npt.NDArray[np.float64]) -> None:
        """Sequences that have written more than was predicted of them: what those came to that wrote as much."""
        for one in self._reserved.values():
            if made[one.slot] >= self._predicted[one.slot]:
                so_far = one.num_generated + int(made[one.slot])
                whole = self._prediction.predict(one.input_tokens, one.max_total, so_far)
                self._predicted[one.slot] = (
                    max(whole - one.num_generated, made[one.slot] + 1) + self._lookahead
                )


def _max_requests(limits: EngineLimits) -> int:
    if limits.pads:
        return PADDED_WINDOW * limits.max_num_seqs
    return limits.max_num_seqs + max(MIN_QUEUE, int(limits.max_num_seqs * QUEUE_SHARE))
