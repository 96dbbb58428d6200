"""The matrix that `batchrun bench` measures: its cells, what does not fit, and how long the rest will take."""

import re
from dataclasses import dataclass
from itertools import product

from batchrun.engines.base import EngineLimits
from batchrun.errors import UsageError
from batchrun.insight.bench_cells import CacheState, Cell, CellResult, CellStatus
from batchrun.profile import Profile

INPUTS, OUTPUTS, CONCURRENCY = (512, 8192, 32768), (64, 512, 2048), (1, 8, 32)
WAVES, FEWEST = 2, 8
"""Requests measured in a cell: so many times its concurrency, and at least so many."""
SHARED_SHARE = 0.75
"""Of a prompt, where prompts share their beginning."""
_SIZE = re.compile(r"([1-9][0-9]{0,8})([Kk]?)")


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """`num_requests` to be measured in every cell; None: WAVES times its concurrency, at least FEWEST."""

    inputs: tuple[int, ...] = INPUTS
    outputs: tuple[int, ...] = OUTPUTS
    concurrency: tuple[int, ...] = CONCURRENCY
    caches: tuple[CacheState, ...] = tuple(CacheState)
    num_requests: int | None = None

    def cells(self) -> list[Cell]:
        """Each once, the states of the cache of one shape after one another, cold first."""
        lengths = product(dict.fromkeys(self.inputs), dict.fromkeys(self.outputs))
        return [
            Cell(input_tokens=read, output_tokens=written, concurrency=number, cache=state)
            for read, written in lengths
            for number in dict.fromkeys(self.concurrency)
            for state in CacheState
            if state in self.caches
        ]

    def num_requests_of(self, cell: Cell) -> int:
        return self.num_requests or max(WAVES * cell.concurrency, FEWEST)

    def plan(self, limits: EngineLimits) -> list[CellResult]:
        """Every cell, `PENDING`, or `SKIPPED` with the reason why an engine of these limits can not run it."""
        return [
            CellResult(cell=cell, status=CellStatus.SKIPPED if reason else CellStatus.PENDING, reason=reason)
            for cell in self.cells()
            for reason in [misfit(cell, limits)]
        ]


def misfit(cell: Cell, limits: EngineLimits) -> str | None:
    """Why this engine can not run the cell, with what to change; None where it can."""
    tokens = cell.input_tokens + cell.output_tokens
    if tokens > limits.max_model_len:
        return f"{tokens:,} tokens do not fit engine.max_model_len {limits.max_model_len:,}"
    if blocks(tokens, limits) > limits.kv_tokens:
        return f"{tokens:,} tokens do not fit the KV cache of {limits.kv_tokens:,}"
    if cell.concurrency > limits.max_num_seqs:
        return f"{cell.concurrency:,} at once are more than engine.max_num_seqs {limits.max_num_seqs:,}"
    if cell.cache is not CacheState.COLD and not has_prefix_cache(limits):
        return "the engine has no prefix cache: it would be as cold"
    return None


def has_prefix_cache(limits: EngineLimits) -> bool:
    """Padded batches share nothing, whatever their prompts begin with."""
    return limits.shares_prefixes and not limits.pads


def blocks(tokens: int, limits: EngineLimits) -> int:
    """Tokens of the KV cache that so many take: whole blocks."""
    return -(-tokens // limits.block_size) * limits.block_size


def num_beside(cell: Cell, limits: EngineLimits) -> int:
    """Requests before the measured ones, and as many after them: none where one runs alone; and none in padded
    batches, which begin and end together.
    """
    return cell.concurrency if cell.concurrency > 1 and not limits.pads else 0


def num_warm_prompts(cell: Cell, num_prompts: int, limits: EngineLimits) -> int:
    """How many of a cell's prompts the KV cache holds beside what is written: at least one. With more of them each
    would be gone when its turn comes.
    """
    written = cell.concurrency * blocks(cell.output_tokens + limits.block_size, limits)
    room = (limits.kv_tokens - written) // blocks(cell.input_tokens, limits)
    return max(1, min(num_prompts, room))


def estimated_seconds(cell: Cell, num_requests: int, limits: EngineLimits, profile: Profile) -> float:
    """By the rates of `batchrun calibrate`: reading what the cache does not have, and writing, one after the other.

    Reading is rated at the prompts' length, writing at the cell's concurrency. All requests count, and what is
    read so that it is in the cache; those beside the measured ones write half of their outputs.
    """
    beside = num_beside(cell, limits)
    num_prompts = num_requests + 2 * beside
    read = profile.prefill_seconds(cell.input_tokens)
    reading = {
        CacheState.COLD: num_prompts * read,
        CacheState.WARM: num_warm_prompts(cell, num_prompts, limits) * read,
        CacheState.REPEATED_PREFIX: read + num_prompts * (1 - SHARED_SHARE) * read,
    }[cell.cache]
    return reading + (num_requests + beside) * cell.output_tokens / profile.decode_rate(cell.concurrency)


def parse_sizes(option: str, given: str) -> tuple[int, ...]:
    """`512,8K,32K` as numbers: K is 1,024. Raises UsageError."""
    found = [_SIZE.fullmatch(word.strip()) for word in given.split(",") if word.strip()]
    sizes = tuple(int(one[1]) * (1024 if one[2] else 1) for one in found if one)
    if not found or len(sizes) < len(found):
        hint = f"Give numbers, with commas between them: {option} 512,8K"
        raise UsageError(f"{option} is {given!r}", hint)
    return sizes


def parse_caches(given: str) -> tuple[CacheState, ...]:
    """`cold,warm,repeated-prefix`. Raises UsageError."""
    words = [word.strip() for word in given.split(",") if word.strip()]
    known = [state.value for state in CacheState]
    if not words or not set(words) <= set(known):
        raise UsageError(f"--cache is {given!r}", f"Give some of these: --cache {','.join(known)}")
    return tuple(CacheState(word) for word in words)
