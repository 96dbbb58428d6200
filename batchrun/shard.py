"""A share of a corpus: what one of several runs, on machines of their own, has to do."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchrun.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Share `number`, from 1, `of` so many, by the input hash alone: a text is in one share however often and
    wherever it stands, with all calls that it needs.
    """

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @property
    def ordinal(self) -> int:
        """Its number from 0."""
        return self.number - 1

    def holds(self, numbers: "npt.NDArray[np.uint64]") -> "npt.NDArray[np.bool_]":
        """Which of some keys it has, by the high halves of their hashes or what `numbers_of` gives."""
        held: npt.NDArray[np.bool_] = numbers % self.of == self.ordinal
        return held


MOST = 10_000
"""Shards of a corpus: joining lists them all."""
WHOLE = Shard(number=1, of=1)
"""All of a corpus."""


@dataclass(frozen=True, kw_only=True)
class CorpusName:
    """What a corpus, or a shard of one, is known by: its id, its inputs as given, and of a shard the id of the whole."""

    corpus_id: str
    corpus: list[str]
    shard: Shard | None = None
    whole_id: str | None = None

    @property
    def id_of_whole(self) -> str:
        return self.whole_id or self.corpus_id


def parse_shard(given: str) -> Shard:
    """`2/3` as the second of three. Raises UsageError."""
    found = re.fullmatch(r"\s*(\d{1,9})\s*/\s*(\d{1,9})\s*", given, re.ASCII)
    if found is None or not 1 <= int(found[1]) <= int(found[2]) <= MOST:
        raise UsageError(
            f"{given!r} is no shard",
            f"Give its number, from 1, and how many there are, at most {MOST:,}: --shard 2/3.",
        )
    return Shard(number=int(found[1]), of=int(found[2]))


def numbers_of(rows: "pa.RecordBatch | pa.Table") -> "npt.NDArray[np.uint64]":
    """What the rows of a plan are shared out by. A row without a text has no key and goes by its place, so that
    every row is in one shard, and what can not be read weighs on all of them alike.
    """
    import pyarrow.compute as pc

    places: Any = pc.cast(pc.add(rows["source"], rows["row"]), "uint64")
    numbers: npt.NDArray[np.uint64] = pc.coalesce(rows["hash_hi"], places).to_numpy(zero_copy_only=False)
    return numbers
