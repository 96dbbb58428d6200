"""What the model will see for a row, without a run: its prompt, written out or as a request."""

from collections.abc import Iterator
from dataclasses import dataclass

from batchrun.corpus.corpus import open_corpus
from batchrun.documents import DocumentBatch, plain_values
from batchrun.errors import CorpusError
from batchrun.job import Job
from batchrun.planning.measure import Measure
from batchrun.planning.spool import document_rows
from batchrun.preparation import CorpusInput, plan_settings
from batchrun.prompts.frames import names_in
from batchrun.records import Request
from batchrun.worker.summarizer import summarize


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A prompt with its control tokens spelt out. `num_parts` of a long document, whose first part this is."""

    text: str
    num_tokens: int
    num_parts: int = 1


def preview(job: Job, given: CorpusInput, doc_id: str) -> Prompt:
    """The prompt of the first row with this id. Raises CorpusError where there is none, or it has no prompt."""
    corpus = open_corpus(given.files, given.wishes, given.limit, names_in(job.spec.prompt.instruction))
    for batch in corpus.batches():
        ids = [str(value) for value in plain_values(batch.carried["doc_id"])]
        if doc_id in ids:
            return _prompt(job, batch.one(ids.index(doc_id)), tuple(corpus.variables))
    raise CorpusError(f"no row has the id {doc_id!r}", "Ids are those of the id column, or row numbers.")


def requests(job: Job, given: CorpusInput) -> Iterator[Request]:
    """The calls of the rows that fit the context, in input order, as the worker makes them. Raises CorpusError."""
    corpus = open_corpus(given.files, given.wishes, given.limit, names_in(job.spec.prompt.instruction))
    variables = tuple(corpus.variables)
    measure, settings = Measure(job.tokenizer, plan_settings(job, variables)), job.call_settings(variables)
    for batch in corpus.batches():
        for document in document_rows(measure.measure(batch).spool):
            for call in next(summarize(document, settings)):
                yield call.request


def _prompt(job: Job, row: DocumentBatch, variables: tuple[str, ...]) -> Prompt:
    """As planning measures the row and the worker asks for it."""
    measure = Measure(job.tokenizer, plan_settings(job, variables))
    measured = measure.measure(row)
    for verdict in (*row.verdicts.values(), *measured.verdicts.values()):
        raise CorpusError(f"this row has no prompt: {verdict.error}", "It is not sent to the model.")
    spooled = measure.cut(measured.long[0]) if measured.long else measured.spool
    [document] = document_rows(spooled)
    call, *_ = next(summarize(document, job.call_settings(variables)))
    token_ids = call.request.prompt_token_ids
    return Prompt(
        text=job.tokenizer.spelt_out(token_ids),
        num_tokens=len(token_ids),
        num_parts=max(1, len(document.parts)),
    )
