"""Which of the waiting requests are computed together, where a batch is padded to its longest prompt."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from batchrun.records import Request

MAX_PADDING_SHARE = 0.5
"""Of a row: rather a smaller batch than one in which a prompt is padded to more than twice its length."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """What a batch may take: prompt positions computed at once, positions in the KV cache when every output
    is as long as it may be, padding counted in both, and sequences; of prompts between two of `edges`.
    """

    batched_tokens: int
    kv_tokens: int
    num_seqs: int
    edges: tuple[int, ...] = ()

    def after_failed_prefill(self, positions: int) -> "Room":
        """Half of what did not fit."""
        return replace(self, batched_tokens=max(1, min(self.batched_tokens, positions) // 2))

    def after_failed_decode(self, positions: int) -> "Room":
        """Half of what did not fit."""
        return replace(self, kv_tokens=max(1, min(self.kv_tokens, positions) // 2))


@dataclass(frozen=True, kw_only=True)
class _Shape:
    shortest: int
    longest: int
    output: int
    num_rows: int
    num_tokens: int

    @classmethod
    def of(cls, request: Request, max_model_len: int) -> "_Shape":
        length, output = _length(request), max_output(request, max_model_len)
        return cls(shortest=length, longest=length, output=output, num_rows=1, num_tokens=length)

    def joined_by(self, other: "_Shape") -> "_Shape":
        return _Shape(
            shortest=min(self.shortest, other.shortest),
            longest=max(self.longest, other.longest),
            output=max(self.output, other.output),
            num_rows=self.num_rows + other.num_rows,
            num_tokens=self.num_tokens + other.num_tokens,
        )

    @property
    def positions(self) -> int:
        return self.num_rows * self.longest

    @property
    def padding(self) -> int:
        return self.positions - self.num_tokens

    def fits(self, room: Room) -> bool:
        return (
            self.num_rows <= room.num_seqs
            and self.positions <= room.batched_tokens
            and self.num_rows * (self.longest + self.output) <= room.kv_tokens
            and self.longest - self.shortest <= MAX_PADDING_SHARE * self.longest
            and bisect_right(room.edges, self.shortest) == bisect_right(room.edges, self.longest)
        )


def choose_batch(waiting: Sequence[Request], room: Room, max_model_len: int) -> list[Request]:
    """The first of the waiting requests, and those nearest to it in length as far as there is room.

    So nobody waits for ever. The first is taken whatever the room: alone it is the smallest batch there is.
    """
    by_length = sorted(waiting, key=_length)
    first = last = next(n for n, request in enumerate(by_length) if request is waiting[0])
    shape = _Shape.of(by_length[first], max_model_len)
    while True:
        places = (place for place in (first - 1, last + 1) if 0 <= place < len(by_length))
        joined = [(shape.joined_by(_Shape.of(by_length[place], max_model_len)), place) for place in places]
        fitting = [(wider, place) for wider, place in joined if wider.fits(room)]
        if not fitting:
            return by_length[first : last + 1]
        shape, place = min(fitting, key=lambda found: found[0].padding)
        first, last = min(first, place), max(last, place)


def max_output(request: Request, max_model_len: int) -> int:
    """The most tokens that an output may have."""
    return min(request.max_tokens, max_model_len - _length(request))


def _length(request: Request) -> int:
    return len(request.prompt_token_ids)
