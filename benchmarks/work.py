"""The work that arms are compared on: sets of documents, the same on the same machine.

Documents are those of Debian's linux-doc-6.1, without it the READMEs of installed packages.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from batchrun.job import Job
from benchmarks.corpora import Text, linux_documents, readme_texts, sampled, sized

SHORTEST = 60
"""Tokens of a document; below are mere titles and lists of files."""
DUPLICATE_SHARE = 0.3
FAMILY = 4
"""Documents that begin alike."""
BEGINNING_SHARE = 0.8
"""Of such a document that it has in common with its family."""
SMALL_KV_BYTES = 2**28
"""Of KV cache for documents that begin alike: 5,800 tokens of SmolLM2-135M in float32, too few to hold what all
of them have in common.
"""
SHORT, LONG = 32, 256
ALL_ARMS = ("generate", "chunks", "run-batch", "padded", "batchrun-transformers", "batchrun")
TWO_ARMS = ("generate", "batchrun")


@dataclass(frozen=True, kw_only=True)
class Work:
    """Documents in the order of the corpus, and how they are to be summarized; `max_tokens` of each output.

    `share`: of the number of documents asked for; less where a document takes longer.
    """

    name: str
    texts: list[Text] = field(default_factory=list)
    max_tokens: int = SHORT
    kv_cache_memory_bytes: int = 2**30
    arms: tuple[str, ...] = TWO_ARMS
    share: float = 1.0


def make_work(name: str, job: Job, *, number: int, longest: int) -> Work:
    """The set `name` of `number` documents, or its share of that, of at most `longest` tokens of the job's
    tokenizer.
    """
    make, work = SETS[name]
    pool = sampled(sized(_documents(), job, range(SHORTEST, longest + 1)))
    return replace(work, texts=make(pool, job, round(work.share * number), longest))


@cache
def _documents() -> list[Text]:
    return [_on_a_line_of_its_own(it) for it in linux_documents() or readme_texts()]


def _on_a_line_of_its_own(text: Text) -> Text:
    """With a line break before it: an arm that takes prompts as text alone then makes the same tokens of instruction
    and document together as they have apart, unless the document begins with a digit.
    """
    return replace(text, text="\n" + text.text.lstrip())


def _first(pool: Sequence[Text], _: Job, number: int, __: int) -> list[Text]:
    return list(pool[:number])


def _with_duplicates(pool: Sequence[Text], _: Job, number: int, __: int) -> list[Text]:
    """Each of the last 30 % is one of the others again, all shuffled."""
    num_own = number - round(DUPLICATE_SHARE * number)
    dice = random.Random(1)  # noqa: S311 - a sample, not a secret
    own = list(pool[:num_own])
    again = [replace(dice.choice(own), id=f"again-{place}") for place in range(number - num_own)]
    return _shuffled([*own, *again])


def _with_beginnings(pool: Sequence[Text], job: Job, number: int, longest: int) -> list[Text]:
    """Families that begin with the same text, and go on with a text of their own, all shuffled."""
    num_families = -(-number // FAMILY)
    num_shared = round(BEGINNING_SHARE * longest)
    joined = "\n\n".join(text.text for text in pool)
    beginnings = _pieces(joined, job, num_families, num_shared, 0)
    own = _pieces(joined, job, number, longest - num_shared - SHORTEST // 2, num_families * num_shared)
    texts = [f"{beginnings[place % num_families]}\n\n{ending}" for place, ending in enumerate(own)]
    return _shuffled([Text(id=f"alike-{place}", text=text) for place, text in enumerate(texts)])


def _pieces(joined: str, job: Job, number: int, size: int, start: int) -> list[str]:
    """Pieces of a text, of `size` tokens each, from token `start` on."""
    ids = job.tokenizer.encode_documents([joined]).ids.tolist()
    bounds = range(start, start + number * size, size)
    if bounds and bounds[-1] + size > len(ids):
        raise ValueError(f"{len(ids):,} tokens of documents are too few for {number} pieces of {size:,}")
    return job.tokenizer.decode([ids[place : place + size] for place in bounds])


def _shuffled(texts: list[Text]) -> list[Text]:
    random.Random(2).shuffle(texts)  # noqa: S311
    return texts


Maker = Callable[[Sequence[Text], Job, int, int], list[Text]]
SETS: dict[str, tuple[Maker, Work]] = {
    "documents": (_first, Work(name="documents", arms=ALL_ARMS)),
    "outputs": (_first, Work(name="outputs", max_tokens=LONG, arms=(*TWO_ARMS, "batchrun-ngram"), share=0.5)),
    "duplicates": (_with_duplicates, Work(name="duplicates")),
    "beginnings": (
        _with_beginnings,
        Work(name="beginnings", kv_cache_memory_bytes=SMALL_KV_BYTES, share=0.5),
    ),
}
TITLES = {
    "documents": "documents",
    "outputs": "documents",
    "duplicates": "documents, 30 % of them duplicates",
    "beginnings": "documents in families that begin alike, shuffled",
}
