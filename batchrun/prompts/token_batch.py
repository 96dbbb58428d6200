"""Token ids of many texts in two flat arrays."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, kw_only=True)
class TokenBatch:
    """Token ids of n texts: text i is `ids[offsets[i]:offsets[i + 1]]`; `offsets` has n + 1 entries."""

    ids: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.int64]

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return np.diff(self.offsets)


def from_buffers(ids: bytes, offsets: bytes) -> TokenBatch:
    """The two buffers that fastokens gives, without a copy."""
    return TokenBatch(ids=np.frombuffer(ids, np.uint32), offsets=np.frombuffer(offsets, np.int64))


def from_lists(rows: Sequence[Sequence[int]]) -> TokenBatch:
    lengths = [len(row) for row in rows]
    ids = np.concatenate([np.asarray(row, np.uint32) for row in rows] or [np.empty(0, np.uint32)])
    return TokenBatch(ids=ids, offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def join(batches: Sequence[TokenBatch]) -> TokenBatch:
    """The texts of all batches, in order."""
    starts = np.cumsum([0, *(len(batch.ids) for batch in batches)]).astype(np.int64)
    offsets = [batch.offsets[1:] + start for batch, start in zip(batches, starts, strict=False)]
    ids = np.concatenate([batch.ids for batch in batches])
    return TokenBatch(ids=ids, offsets=np.concatenate([starts[:1], *offsets]))


def interleave(first: TokenBatch, second: TokenBatch, is_first: npt.NDArray[np.bool_]) -> TokenBatch:
    """One batch from two; `is_first[i]` says which of the two gives text i, each in its own order."""
    starts = np.empty(len(is_first), np.int64)
    lengths = np.empty(len(is_first), np.int64)
    starts[is_first], lengths[is_first] = first.offsets[:-1], first.lengths
    starts[~is_first], lengths[~is_first] = second.offsets[:-1] + len(first.ids), second.lengths
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    return TokenBatch(ids=np.concatenate([first.ids, second.ids])[places], offsets=offsets)
