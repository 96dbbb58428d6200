"""Texts of a plan's rows, read again where the corpus is still what was planned."""

from collections.abc import Collection
from dataclasses import dataclass, field

from batchrun.corpus.corpus import ColumnWishes, open_corpus
from batchrun.corpus.files import STDIN, CorpusFile
from batchrun.corpus.inputs import find_files
from batchrun.errors import BatchrunError
from batchrun.planning.plan import PlanRecord
from batchrun.store.target import is_batchrun_output

FIRST_ROWS = 200_000
"""So many rows of a corpus are read for the texts of a few: some seconds, and a night of any size costs no more."""


@dataclass(frozen=True, kw_only=True)
class Texts:
    """By the number of the row in its plan. `problem` says why there are none."""

    of_row: dict[int, str] = field(default_factory=dict)
    problem: str | None = None


def read_texts(plan: PlanRecord, rows: Collection[int]) -> Texts:
    """The texts of those of `rows` that stand among the first `FIRST_ROWS` of its corpus."""
    if STDIN in plan.inputs:
        return Texts(problem="the corpus came on standard input and is not kept")
    try:
        files = find_files(plan.inputs, is_batchrun_output, text=plan.signature["text"]).files
        if [[file.size, file.mtime_ns] for file in files] != [it[2:] for it in plan.signature["files"]]:
            return Texts(problem="the corpus has changed since it was planned")
        return Texts(of_row=_texts(files, plan, {row for row in rows if row < FIRST_ROWS}))
    except BatchrunError as error:
        return Texts(problem=error.reason)
    except OSError as error:
        return Texts(problem=f"the corpus can not be read: {error}")


def _texts(files: list[CorpusFile], plan: PlanRecord, rows: set[int]) -> dict[int, str]:
    found: dict[int, str] = {}
    wishes = ColumnWishes(text=plan.signature["text"], id=plan.signature["id"])
    start, last = 0, max(rows, default=-1)
    batches = open_corpus(files, wishes, plan.signature["limit"]).batches()
    while start <= last:
        batch = next(batches)
        for row in rows.intersection(range(start, start + len(batch))):
            text = batch.texts[row - start]
            if text is not None:
                found[row] = text
        start += len(batch)
    return found
