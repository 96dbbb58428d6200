"""What a figure leaves out: rows and requests that it can not speak of, and why."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Exclusion:
    """`number` of `total` rows or requests of a side (`A`, `B`, or both together: None) are in no figure `of` that name;
    `number` is None where nothing is counted.
    """

    of: str
    reason: str
    side: str | None = None
    number: int | None = None
    total: int | None = None

    @property
    def text(self) -> str:
        """`times of 0–1K: 3 of 40 of B: they failed`."""
        count = "" if self.number is None else f"{self.number:,}"
        if self.total is not None:
            count += f" of {self.total:,}"
        if self.side is not None:
            count += f" of {self.side}" if count else self.side
        return ": ".join(part for part in (self.of, count, self.reason) if part)
