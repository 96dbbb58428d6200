"""Documents for `benchmarks.quality`: of installed packages, and of Debian's linux-doc-6.1. No downloads.

The same machine gives the same documents, in an order that is random and always the same.
"""

import random
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from batchrun.job import Job
from batchrun.preparation import longest_document
from benchmarks.reading import FOLDER as LINUX_DOC
from benchmarks.reading import documents
from tests.materials.readmes import readmes

FEWEST_README_TOKENS = 200
FEWEST_DESCRIPTION_CHARACTERS = 200
LONG_TOKENS = range(4_000, 25_001)


@dataclass(frozen=True, kw_only=True)
class Text:
    """A document with the line that describes it; a long one has none."""

    id: str
    text: str
    reference: str = ""


def sampled(texts: Iterable[Text]) -> list[Text]:
    """In an order that is random and always the same."""
    ordered = sorted(texts, key=lambda it: it.id)
    random.Random(0).shuffle(ordered)  # noqa: S311 - a sample, not a secret
    return ordered


def sized(texts: Sequence[Text], job: Job, tokens: range) -> list[Text]:
    lengths = job.tokenizer.encode_documents([it.text for it in texts]).lengths.tolist()
    return [it for it, length in zip(texts, lengths, strict=True) if length in tokens]


def fitting_readmes(job: Job) -> list[Text]:
    """In an order that is random and always the same, those that fit one prompt and are no mere line."""
    return sampled(sized(readme_texts(), job, range(FEWEST_README_TOKENS, longest_document(job) + 1)))


def readme_texts() -> list[Text]:
    return [Text(id=it.name, text=it.text, reference=it.summary) for it in readmes()]


def descriptions() -> list[Text]:
    """Of installed Debian packages: the extended description, and its synopsis. One package of each source,
    for those made of one source are described alike.

    They come from dpkg: `apt-cache dumpavail` has synopses alone, unless the archive's translations are there.
    """
    shown = "${source:Package}\x1f${Package}\x1f${Description}\x1e"
    words = ["dpkg-query", "--show", f"--showformat={shown}"]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    packages = [package.split("\x1f") for package in listed.split("\x1e") if package]
    by_source: dict[str, Text] = {}
    for source, name, description in sorted(packages):
        synopsis, _, rest = description.partition("\n")
        text = "\n".join("" if line == " ." else line.removeprefix(" ") for line in rest.splitlines())
        if synopsis and len(text) >= FEWEST_DESCRIPTION_CHARACTERS:
            by_source.setdefault(source, Text(id=name, text=text, reference=synopsis))
    return sampled({it.text: it for it in by_source.values()}.values())


def linux_documents() -> list[Text]:
    if not LINUX_DOC.is_dir():
        return []
    read = (
        (name, text) for names, texts in documents(LINUX_DOC) for name, text in zip(names, texts, strict=True)
    )
    return [Text(id=name, text=text) for name, text in read if text and "translations/" not in name]


def long_documents(job: Job, number: int) -> list[Text]:
    """READMEs and Linux documents in turns."""
    pools = [sampled(sized(texts, job, LONG_TOKENS)) for texts in (readme_texts(), linux_documents())]
    return [it for it in chain.from_iterable(zip_longest(*pools)) if it is not None][:number]
