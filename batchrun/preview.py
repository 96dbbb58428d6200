"""What the model will see for a row: its prompt, written out, without a run."""

from dataclasses import dataclass

from batchrun.corpus.corpus import open_corpus
from batchrun.documents import DocumentBatch, plain_values
from batchrun.errors import CorpusError
from batchrun.job import Job
from batchrun.preparation import CorpusInput, plan_settings
from batchrun.prompts.frames import names_in
from batchrun.prompts.parts import Splitter, title_of


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A prompt with its control tokens spelt out. `num_parts` of a long document, whose first part this is."""

    text: str
    num_tokens: int
    num_parts: int = 1


def preview(job: Job, given: CorpusInput, doc_id: str) -> Prompt:
    """The prompt of the first row with this id. Raises CorpusError where there is none, or it has no text."""
    corpus = open_corpus(given.files, given.wishes, given.limit, names_in(job.spec.prompt.instruction))
    for batch in corpus.batches():
        ids = [str(value) for value in plain_values(batch.carried["doc_id"])]
        if doc_id in ids:
            return _prompt(job, batch, ids.index(doc_id), corpus.variables)
    raise CorpusError(f"no row has the id {doc_id!r}", "Ids are those of the id column, or row numbers.")


def _prompt(job: Job, batch: DocumentBatch, place: int, variables: tuple[str, ...]) -> Prompt:
    text = batch.texts[place]
    if text is None:
        raise CorpusError(
            f"this row has no prompt: {batch.verdicts[place].error}", "It is not sent to the model."
        )
    columns = batch.variables
    values = {} if columns is None else {name: columns[name][place].as_py() or "" for name in variables}
    settings = plan_settings(job, variables)
    frame, ids = job.prompts.document(values), job.tokenizer.encode_documents([text]).ids
    num_parts = 1
    if len(ids) > (room := settings.room - frame.num_tokens):
        if settings.policy == "fail":
            raise CorpusError(
                f"this document has {len(ids):,} tokens, of {room:,} that fit",
                "Choose another [long_documents] policy in the spec.",
            )
        if settings.policy == "truncate":
            ids = job.tokenizer.whole_characters(ids[:room])
        else:
            title = title_of(text, values)
            frame = job.prompts.part(1, title, values)
            splitter = Splitter(job.tokenizer, overlap_share=settings.overlap_share)
            parts = splitter.split(text, ids, settings.part_room(title, values))
            ids, num_parts = parts[0].token_ids, len(parts)
    prompt = frame.around(ids.tolist())
    return Prompt(text=job.tokenizer.spelt_out(prompt), num_tokens=len(prompt), num_parts=num_parts)
