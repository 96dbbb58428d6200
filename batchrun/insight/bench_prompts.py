"""The requests of cells: random prompts, and what is read before them so that the prefix cache is as it shall be."""

from itertools import cycle, islice

from batchrun.engines.base import EngineLimits
from batchrun.insight.bench_cells import CacheState, Cell
from batchrun.insight.bench_plan import SHARED_SHARE, Matrix, num_warm_prompts
from batchrun.random_prompts import RandomPrompts
from batchrun.records import Request


class CellPrompts:
    """Every cell has prompts of its own, so that nothing of them is in the cache; only a warm one has those of the
    cold one of its shape, as many of the last of them as the cache holds, round and round.
    """

    def __init__(self, prompts: RandomPrompts, matrix: Matrix, limits: EngineLimits) -> None:
        self._prompts = prompts
        self._matrix = matrix
        self._limits = limits
        self._cold: dict[tuple[int, int, int], list[list[int]]] = {}  # of the last shape

    def of(self, cell: Cell) -> tuple[list[Request], list[Request]]:
        """Requests of one output token that bring the cache into the cell's state, and those to be measured."""
        before: list[list[int]] = []
        if cell.cache is CacheState.REPEATED_PREFIX:
            before, prompts = self._with_one_prefix(cell)
        else:
            prompts = self._of_shape(cell)
        if cell.cache is CacheState.WARM:
            before = prompts[-num_warm_prompts(cell, len(prompts), self._limits) :]
            prompts = list(islice(cycle(before), len(prompts)))
        return (
            [self._prompts.request(prompt, 1, ignore_eos=True) for prompt in before],
            [self._prompts.request(prompt, cell.output_tokens, ignore_eos=True) for prompt in prompts],
        )

    def _with_one_prefix(self, cell: Cell) -> tuple[list[list[int]], list[list[int]]]:
        shared = self._prompts.tokens(int(SHARED_SHARE * cell.input_tokens))
        rest, number = cell.input_tokens - len(shared), self._matrix.num_requests_of(cell)
        prompts = [[*shared, *self._prompts.tokens(rest)] for _ in range(1 + number)]
        return prompts[:1], prompts[1:]

    def _of_shape(self, cell: Cell) -> list[list[int]]:
        shape = (cell.input_tokens, cell.output_tokens, cell.concurrency)
        if shape not in self._cold:
            number = self._matrix.num_requests_of(cell)
            self._cold = {shape: [self._prompts.tokens(cell.input_tokens) for _ in range(number)]}
        return self._cold[shape]
