"""What arms came to, side by side: medians over rounds, ratios within rounds, equal outputs, a Markdown table."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

HEADER = (
    "arm",
    "s, engine loaded to last output",
    "s, whole process",
    "tokens/s",
    "times arm 1",
    "share of ceiling",
    "equal outputs",
)


@dataclass(frozen=True, kw_only=True)
class Output:
    """What was said to one document. `token_ids` where the arm tells them; `is_cut`: ended early, because it
    repeated itself.
    """

    text: str
    num_tokens: int
    token_ids: tuple[int, ...] | None = None
    is_cut: bool = False


@dataclass(frozen=True, kw_only=True)
class Measured:
    """An arm's work once. `running_seconds`: from the engine loaded to the last output; outputs in the corpus's
    order.
    """

    whole_seconds: float
    running_seconds: float
    outputs: tuple[Output, ...]
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class Equality:
    """Of outputs against those of another arm: `equal`, `cut` (their beginning, ended early for repetition),
    and what is neither.
    """

    equal: int
    cut: int
    total: int

    def __str__(self) -> str:
        cut = f" and {self.cut} cut" if self.cut else ""
        return f"{self.equal}{cut} of {self.total}"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Rounds by arm, arm 1 first. `input_tokens` are those of all prompts; `ceiling_seconds` the least time for
    the prompts and the outputs of arm 1.
    """

    rounds: dict[str, list[Measured]]
    input_tokens: int
    ceiling_seconds: float | None = None

    def rows(self) -> list[tuple[str, ...]]:
        """The table's cells, an arm a row, the ceiling last."""
        rows = [self._row(arm) for arm, measured in self.rounds.items() if measured]
        if self.ceiling_seconds is not None:
            rows.append(("the ceiling", f"{self.ceiling_seconds:.1f}", "", "", "", "1.00", ""))
        return rows

    def remarks(self) -> list[str]:
        """What arms say of how they were run, each once."""
        said = [
            f"{arm}: {one.remark}" for arm, measured in self.rounds.items() for one in measured if one.remark
        ]
        return list(dict.fromkeys(said))

    def _row(self, arm: str) -> tuple[str, ...]:
        measured = self.rounds[arm]
        running = [one.running_seconds for one in measured]
        tokens = [self._tokens(one) / one.running_seconds for one in measured]
        ceiling = self.ceiling_seconds
        return (
            arm,
            spread(running),
            spread([one.whole_seconds for one in measured]),
            f"{median(tokens):,.0f}",
            f"{median(self._ratios(measured)):.2f}",
            "" if ceiling is None else f"{median(ceiling / seconds for seconds in running):.2f}",
            str(self._equality(measured)),
        )

    def _tokens(self, one: Measured) -> int:
        return self.input_tokens + sum(output.num_tokens for output in one.outputs)

    @property
    def _first(self) -> list[Measured]:
        return next(measured for measured in self.rounds.values() if measured)

    def _ratios(self, measured: Sequence[Measured]) -> list[float]:
        """How many times as fast as arm 1 in the same round."""
        pairs = zip(self._first, measured, strict=False)
        return [first.running_seconds / one.running_seconds for first, one in pairs]

    def _equality(self, measured: Sequence[Measured]) -> Equality:
        """Against the first round of arm 1; that of the round with the fewest."""
        found = (equality(self._first[0].outputs, one.outputs) for one in measured)
        return min(found, key=lambda one: one.equal + one.cut)


def equality(wanted: Sequence[Output], found: Sequence[Output]) -> Equality:
    """Token for token where both tell their tokens, else text for text."""
    pairs = list(zip(wanted, found, strict=True))
    equal = [is_equal(one, other) for one, other in pairs]
    cut = [
        other.is_cut and not same and bare(one.text).startswith(bare(other.text))
        for (one, other), same in zip(pairs, equal, strict=True)
    ]
    return Equality(equal=sum(equal), cut=sum(cut), total=len(pairs))


def is_equal(one: Output, other: Output) -> bool:
    if one.token_ids is not None and other.token_ids is not None:
        return one.token_ids == other.token_ids
    return bare(one.text) == bare(other.text)


def bare(text: str) -> str:
    """Without blanks at its ends, and without a last character of which only the beginning was said: vLLM
    leaves that out, batchrun writes a replacement character.
    """
    return text.strip().rstrip("\ufffd").strip()


def spread(values: Sequence[float]) -> str:
    """`median [least–most]`; one value alone is itself."""
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{median(values):.1f} [{min(values):.1f}–{max(values):.1f}]"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown; the first column to the left, numbers to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
