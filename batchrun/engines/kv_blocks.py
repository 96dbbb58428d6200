"""A KV cache in blocks, as vLLM keeps it: full blocks are named by what leads up to them, and shared."""

from array import array
from collections import OrderedDict
from collections.abc import Sequence

import xxhash


def block_names(token_ids: Sequence[int], block_size: int) -> list[int]:
    """Of each full block a name that depends on its tokens and on all before them (vLLM's chained hashes)."""
    num_full = len(token_ids) // block_size
    data = array("I", token_ids[: num_full * block_size]).tobytes()
    size, name, names = 4 * block_size, 0, []
    for start in range(0, len(data), size):
        name = xxhash.xxh3_64_intdigest(data[start : start + size], name)
        names.append(name)
    return names


class KVBlocks:
    """Numbered blocks, each free or held by one or more sequences. A free block keeps what it holds until it
    is the one used least recently and another sequence needs it.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._holders = [0] * num_blocks
        self._name_of: list[int | None] = [None] * num_blocks
        self._by_name: dict[int, int] = {}

    @property
    def usage(self) -> float:
        """The share of blocks that are held."""
        return 1 - len(self._free) / self.num_blocks

    def hold_named(self, names: Sequence[int]) -> list[int]:
        """The blocks of the longest known beginning of `names`, held once more."""
        blocks = []
        for name in names:
            block = self._by_name.get(name)
            if block is None:
                break
            self._free.pop(block, None)
            self._holders[block] += 1
            blocks.append(block)
        return blocks

    def hold_new(self, number: int) -> list[int] | None:
        """So many blocks to be written, or None where fewer are free."""
        if number > len(self._free):
            return None
        blocks = [self._free.popitem(last=False)[0] for _ in range(number)]
        for block in blocks:
            self._forget(block)
            self._holders[block] = 1
        return blocks

    def name(self, block: int, name: int) -> None:
        """What a block that is full now holds; of two with one name the first is found."""
        if name not in self._by_name:
            self._by_name[name] = block
            self._name_of[block] = name

    def release(self, blocks: Sequence[int]) -> None:
        """Give up a sequence's blocks; its last are the first to be used again."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if not self._holders[block]:
                self._free[block] = None

    def _forget(self, block: int) -> None:
        name = self._name_of[block]
        if name is not None:
            del self._by_name[name]
            self._name_of[block] = None
