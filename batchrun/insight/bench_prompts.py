"""The requests of cells: random prompts, and what is read before them so that the prefix cache is as it shall be."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from math import ceil

from batchrun.engines.base import EngineLimits
from batchrun.insight.bench_cells import CacheState, Cell
from batchrun.insight.bench_plan import SHARED_SHARE, Matrix, num_beside, num_warm_prompts
from batchrun.random_prompts import RandomPrompts
from batchrun.records import Request


@dataclass(frozen=True, kw_only=True)
class CellRequests:
    """Of one cell, in the order in which an engine gets them. `priming` bring its cache into the cell's state, one
    output token each. Those before and after the measured ones keep the engine as full beside the first and the
    last of them as it is beside the others.
    """

    priming: list[Request]
    before: list[Request]
    measured: list[Request]
    after: list[Request]


class CellPrompts:
    """Every cell has prompts of its own, so that nothing of them is in the cache; only a warm one has those of the
    cold one of its shape, as many of the last of them as the cache holds, round and round.
    """

    def __init__(self, prompts: RandomPrompts, matrix: Matrix, limits: EngineLimits) -> None:
        self._prompts = prompts
        self._matrix = matrix
        self._limits = limits
        self._cold: dict[tuple[int, int, int], list[list[int]]] = {}  # of the last shape

    def of(self, cell: Cell) -> CellRequests:
        """As in a queue that is never empty: a request begins whenever one ends, and they end one after another, since
        those before the measured ones, which begin together, have shorter outputs and longer ones.
        """
        whole, beside = cell.output_tokens, num_beside(cell, self._limits)
        priming, prompts = self._prompts_of(cell)
        return CellRequests(
            priming=[self._request(prompt, 1) for prompt in priming],
            before=[self._request(next(prompts), output) for output in self._rising(cell, beside)],
            measured=[self._request(next(prompts), whole) for _ in range(self._matrix.num_requests_of(cell))],
            after=[self._request(next(prompts), whole) for _ in range(beside)],
        )

    def _rising(self, cell: Cell, number: int) -> list[int]:
        """Lengths of outputs, up to the cell's; the first does not end before all prompts are read."""
        share = {CacheState.COLD: 1.0, CacheState.WARM: 0.0, CacheState.REPEATED_PREFIX: 1 - SHARED_SHARE}
        to_read = number * cell.input_tokens * share[cell.cache]
        shortest = min(cell.output_tokens, ceil(to_read / self._limits.max_num_batched_tokens))
        longer = cell.output_tokens - shortest
        return [shortest + ceil(longer * (place + 1) / number) for place in range(number)]

    def _request(self, prompt: list[int], output: int) -> Request:
        return self._prompts.request(prompt, output, ignore_eos=True)

    def _prompts_of(self, cell: Cell) -> tuple[list[list[int]], Iterator[list[int]]]:
        """What is read before, and the prompts themselves."""
        if cell.cache is CacheState.COLD:
            return [], iter(self._of_shape(cell))
        if cell.cache is CacheState.WARM:
            cold = self._of_shape(cell)
            kept = cold[-num_warm_prompts(cell, len(cold), self._limits) :]
            return kept, cycle(kept)
        shared = self._prompts.tokens(int(SHARED_SHARE * cell.input_tokens))
        rest = cell.input_tokens - len(shared)
        prompts = ([*shared, *self._prompts.tokens(rest)] for _ in cycle([None]))
        return [next(prompts)], prompts

    def _of_shape(self, cell: Cell) -> list[list[int]]:
        shape = (cell.input_tokens, cell.output_tokens, cell.concurrency)
        if shape not in self._cold:
            number = self._matrix.num_requests_of(cell) + 2 * num_beside(cell, self._limits)
            self._cold = {shape: [self._prompts.tokens(cell.input_tokens) for _ in range(number)]}
        return self._cold[shape]
