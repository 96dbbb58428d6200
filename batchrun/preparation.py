"""From corpus files to a valid plan: what the corpus reads and the planner writes, brought together."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchrun.corpus.corpus import ColumnWishes, Corpus, open_corpus, signature
from batchrun.corpus.files import STDIN, CorpusFile
from batchrun.corpus.inputs import find_files
from batchrun.corpus.standard_input import copy
from batchrun.errors import DamageError
from batchrun.job import Job
from batchrun.planning.departures import keep_plan
from batchrun.planning.measure import PlanSettings
from batchrun.planning.plan import PlanRecord, encode_types, hashes_of, read_intact, write_record
from batchrun.planning.planner import Counted, Planner
from batchrun.prompts.frames import names_in
from batchrun.reporter import Reporter
from batchrun.scratch import scratch_folder
from batchrun.shard import WHOLE, CorpusName, Shard
from batchrun.store.checkpoints import Checkpoints
from batchrun.store.target import is_batchrun_output
from batchrun.succession import last_complete
from batchrun.telemetry.run_records import read_runs, timestamp
from batchrun.workspace import CorpusPaths, corpus_id

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

STDIN_PATH = "/dev/stdin"


@dataclass(frozen=True, kw_only=True)
class CorpusInput:
    """A corpus as a person gave it, with the files that it is now.

    `notes` say what was passed over. `copy` holds what came on standard input, and goes when it is planned.
    """

    given: list[str]
    files: list[CorpusFile]
    wishes: ColumnWishes
    limit: int | None
    shard: Shard | None = None
    notes: list[str] = field(default_factory=list)
    copy: "TemporaryDirectory[str] | None" = None

    @property
    def name(self) -> CorpusName:
        """Standard input has no path of its own: it is one corpus wherever it is read."""
        paths = [STDIN_PATH if given == STDIN else given for given in self.given]
        return CorpusName(
            corpus_id=corpus_id(paths, self.limit, self.shard),
            corpus=self.given,
            shard=self.shard,
            whole_id=corpus_id(paths, self.limit) if self.shard else None,
        )

    @property
    def inputs(self) -> list[str]:
        """What was given, with absolute paths."""
        return [given if given == STDIN else os.path.abspath(given) for given in self.given]

    def signature(self, job: Job) -> dict[str, Any]:
        """The same signature, the same plan and spool."""
        return signature(self.files, self.wishes, self.limit) | {"edges": list(job.spec.buckets.edges)}


def find_corpus(
    job: Job, given: list[str], wishes: ColumnWishes, limit: int | None, shard: Shard | None = None
) -> CorpusInput:
    """Expand the inputs; columns not named by option are those of the spec. `-` is standard input, which is
    copied to disk. Raises CorpusError, and OSError where the disk fails.
    """
    columns = job.spec.columns
    wishes = ColumnWishes(text=wishes.text or columns.text, id=wishes.id or columns.id, kept=wishes.kept)
    folder = scratch_folder(job.paths.scratch, "stdin") if STDIN in given else None
    try:
        stdin = copy(sys.stdin.buffer, Path(folder.name) / "stdin") if folder else None
        found = find_files(given, is_batchrun_output, stdin=stdin, text=wishes.text)
    except BaseException:
        if folder:
            folder.cleanup()
        raise
    return CorpusInput(
        given=given,
        files=found.files,
        wishes=wishes,
        limit=limit,
        shard=shard,
        notes=found.notes,
        copy=folder,
    )


def known_plan(paths: CorpusPaths, tell: Callable[[str], None]) -> PlanRecord | None:
    """The corpus' plan, or None where it is to be made; one that is damaged is told."""
    try:
        return read_intact(paths)
    except DamageError as error:
        tell(f"{error.reason}; the corpus is planned anew")
        return None


def make_plan(
    job: Job,
    paths: CorpusPaths,
    given: CorpusInput,
    checkpoints: Checkpoints,
    owner: str,
    reporter: Reporter,
    progress: Callable[[int], None],
    pending_since: str,
    number: int,
) -> PlanRecord:
    """Read the corpus once and leave a valid plan and spool. `progress` is told the rows read so far, and may raise
    to stop; `number` is that of the run. Raises CorpusError, ConfigError, OSError.
    """
    signed = given.signature(job)
    named = names_in(job.spec.prompt.instruction)
    corpus = open_corpus(given.files, given.wishes, given.limit, named)
    notes = [*given.notes, *_notes(corpus, named)]
    for note in notes:
        reporter.note(note)
    if (before := last_complete(read_runs(paths.runs))) is not None:
        keep_plan(paths, before.run_id)
    planner = Planner(
        paths=paths,
        scratch=job.paths.scratch,
        owner=owner,
        tokenizer=job.tokenizer,
        settings=plan_settings(job, tuple(corpus.variables)),
        shard=given.shard or WHOLE,
    )
    counted = planner.plan(
        corpus.batches(),
        done_keys=lambda consume: checkpoints.settled_keys(consume, retry_all=True),
        progress=progress,
    )
    if given.copy is not None:
        given.copy.cleanup()
    record = PlanRecord(
        signature=signed,
        sources=corpus.sources,
        variables=list(corpus.variables),
        num_rows=counted.num_rows,
        decided=counted.decided,
        num_duplicate_ids=counted.num_duplicate_ids,
        notes=notes,
        carried_types=encode_types(corpus.output_types),
        planned_at=timestamp(),
        pending_since=pending_since,
        inputs=given.inputs,
        hashes=hashes_of(paths),
        number=number,
        shard=given.shard,
        num_own_rows=counted.num_own if given.shard else None,
    )
    write_record(paths, record, owner)
    _tell_duplicate_ids(counted, reporter.note)
    return record


def plan_settings(job: Job, variables: tuple[str, ...] = ()) -> PlanSettings:
    """What planning needs to know of a job whose prompts name the columns `variables`."""
    long = job.spec.long_documents
    return PlanSettings(
        prompts=job.prompts,
        variables=variables,
        policy=long.policy,
        overlap_share=long.overlap_share,
        max_tokens=job.spec.output.max_tokens,
        max_model_len=job.max_model_len,
        edges=job.spec.buckets.edges,
    )


def longest_document(job: Job) -> int:
    """Tokens that a document may have to fit with prompt and output."""
    return plan_settings(job).longest_document


def _notes(corpus: Corpus, named: list[str]) -> list[str]:
    """The choices that a person should see: columns, also those in the prompt, and types that differ."""
    chosen = dict.fromkeys(str(columns) for columns in corpus.columns)
    notes = [f"reading {choice}" for choice in chosen]
    if corpus.variables:
        notes.append(f"the prompt names column {', '.join(corpus.variables)}")
    notes += [
        f"{{{name}}} in the prompt stays as it is: no file has a column {name!r}"
        for name in named
        if name not in corpus.variables
    ]
    notes += [
        f"column {name}: its type differs between files, so it comes out as strings"
        for name in corpus.differing
    ]
    return notes


def _tell_duplicate_ids(counted: Counted, note: Callable[[str], None]) -> None:
    if counted.num_duplicate_ids:
        note(
            f"{counted.num_duplicate_ids:,} rows have an id that stood before; each has its row in the output"
        )
