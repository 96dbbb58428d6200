"""What there is to read and to write: of a run by its request telemetry, of a corpus by its plan."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from batchrun.database import Database, literal, statements
from batchrun.estimate import EDGES, Expected, inputs_of
from batchrun.planning.buckets import make_buckets
from batchrun.planning.work import Work, WorkOutline
from batchrun.spec import JobSpec

NO_LENGTH = 1 << 62
"""Which no document has."""


@dataclass(frozen=True, kw_only=True)
class LengthClass:
    """Documents whose calls read `shortest` tokens or more each, up to the next class, and `tokens` in all."""

    shortest: int
    documents: float
    tokens: float


@dataclass(frozen=True, kw_only=True)
class Load:
    """Documents by length of input, from short to long; `outputs` are (output tokens, number of calls), rising, and
    `output_tokens` those of a document on average. `outputs_known`: counted, and not taken to be as long as may be.
    """

    classes: tuple[LengthClass, ...]
    outputs: tuple[tuple[int, int], ...]
    output_tokens: float
    outputs_known: bool

    @property
    def documents(self) -> float:
        return sum(one.documents for one in self.classes)

    @property
    def input_tokens(self) -> float:
        return sum(one.tokens for one in self.classes)

    @property
    def written_tokens(self) -> float:
        return self.documents * self.output_tokens

    def of_length(self, limit: int) -> "Load":
        """The documents of `limit` tokens, the beginning of a class, or more."""
        return replace(self, classes=tuple(one for one in self.classes if one.shortest >= limit))

    def below(self, limit: int) -> "Load":
        """The documents of fewer tokens than `limit`, the beginning of a class."""
        return replace(self, classes=tuple(one for one in self.classes if one.shortest < limit))

    def truncated(self, limit: int) -> "Load":
        """Of those of more tokens than `limit`, the beginning of a class, so many are read; as much is written."""
        cut = (
            replace(one, tokens=one.documents * limit) if one.shortest >= limit else one
            for one in self.classes
        )
        return replace(self, classes=tuple(cut))

    def capped(self, limit: int) -> "Load":
        """With outputs of at most so many tokens a call."""
        written = sum(tokens * number for tokens, number in self.outputs)
        left = sum(min(tokens, limit) * number for tokens, number in self.outputs)
        return replace(self, output_tokens=self.output_tokens * left / max(1, written))

    def capped_share(self, limit: int) -> float:
        """Of calls, those that write more than `limit` tokens."""
        longer = sum(number for tokens, number in self.outputs if tokens > limit)
        return longer / max(1, sum(number for _, number in self.outputs))

    def times(self, factor: float) -> "Load":
        """As many times as many documents, of the same lengths."""
        return replace(
            self,
            classes=tuple(
                replace(one, documents=one.documents * factor, tokens=one.tokens * factor)
                for one in self.classes
            ),
        )

    def expected(self, *, longest: int, running: int) -> Expected:
        """For an estimate; calls read at most `longest` tokens."""
        documents, tokens = ([getattr(one, name) for one in self.classes] for name in ("documents", "tokens"))
        return Expected(
            inputs=inputs_of(documents, tokens, longest=longest),
            documents=round(self.documents),
            output_tokens=self.output_tokens,
            running=running,
        )

    def outline(self, spec: JobSpec, room: int) -> WorkOutline:
        """By the job's buckets; of more than `room` tokens they are long."""
        buckets = make_buckets(spec.buckets.edges)
        documents, tokens = ({bucket.label: 0 for bucket in buckets} for _ in range(2))
        for one in self.classes:
            place = sum(edge <= one.shortest for edge in spec.buckets.edges)
            label = buckets[-1 if one.shortest > room else place].label
            documents[label] += round(one.documents)
            tokens[label] += round(one.tokens)
        return WorkOutline(
            documents_by_bucket=documents,
            tokens_by_bucket=tokens,
            padding_without_buckets=0.0,
            padding_with_buckets=0.0,
        )


def class_edges(spec: JobSpec, room: int) -> tuple[int, ...]:
    """Lengths that a load tells apart: with the edges of the job's buckets, and from where documents are long."""
    return tuple(sorted({*EDGES, *spec.buckets.edges, room + 1}))


def load_of_work(
    work: Work, spec: JobSpec, room: int, known_lengths: Iterable[tuple[int, int]], per_document: float | None
) -> Load:
    """Of what a plan leaves to run. Outputs are those of earlier summaries, of (input, output) tokens as far as there
    are some, and of `per_document` tokens a document on average; else each is as long as may be.
    """
    outline = work.outline(class_edges(spec, room), NO_LENGTH)
    counts = zip(outline.documents_by_bucket.values(), outline.tokens_by_bucket.values(), strict=True)
    classes = tuple(
        LengthClass(shortest=edge, documents=documents, tokens=tokens)
        for edge, (documents, tokens) in zip((0, *class_edges(spec, room)), counts, strict=False)
        if documents
    )
    lengths = sorted(output for _, output in known_lengths)
    outputs = tuple((tokens, lengths.count(tokens)) for tokens in sorted(set(lengths)))
    most = spec.output.max_tokens
    calls = sum(
        number
        for number, _ in inputs_of(
            [one.documents for one in classes], [one.tokens for one in classes], longest=room
        )
    )
    as_long_as_may_be = most * calls / max(1, sum(one.documents for one in classes))
    return Load(
        classes=classes,
        outputs=outputs or ((most, 1),),
        output_tokens=as_long_as_may_be if per_document is None else per_document,
        outputs_known=bool(outputs),
    )


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """Requests of one kind: `first` attempts, `slice`s of outputs that went on, which read their prompt again so far
    as the cache has lost it, a `retry` of what failed before, and what was `aborted` when the run was stopped.
    """

    kind: str
    requests: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int

    @property
    def read_tokens(self) -> int:
        """Computed, and not taken from the cache."""
        return self.input_tokens - self.cached_tokens


def load_of_requests(
    files: list[Path], scratch: Path, spec: JobSpec, room: int
) -> tuple[Load, list[Attempts]]:
    """Of what a run computed. Raises DatabaseError where a file can not be read."""
    edges = class_edges(spec, room)
    with Database(scratch) as database:
        parameters = {"files": [literal(path) for path in files]}

        def rows(named: str, **more: object) -> list[tuple[Any, ...]]:
            sql = statements(__package__)[named]
            found: list[tuple[Any, ...]] = database.connection.execute(sql, parameters | more).fetchall()
            return found

        by_length = rows("documents_by_length", edges=list(edges))
        outputs = tuple((tokens, number) for tokens, number in rows("calls_by_output"))
        attempts = rows("attempts")
    return (
        Load(
            classes=tuple(
                LengthClass(shortest=(0, *edges)[place], documents=documents, tokens=tokens)
                for place, documents, tokens in by_length
            ),
            outputs=outputs,
            output_tokens=sum(tokens * number for tokens, number in outputs)
            / max(1, sum(row[1] for row in by_length)),
            outputs_known=True,
        ),
        _attempts(attempts),
    )


KINDS = ("first", "slice", "retry", "aborted")


def _attempts(rows: list[tuple[Any, ...]]) -> list[Attempts]:
    names = ("kind", "requests", "input_tokens", "cached_tokens", "output_tokens")
    found = {row[0]: Attempts(**dict(zip(names, row, strict=True))) for row in rows}
    return [found[kind] for kind in KINDS if kind in found]
