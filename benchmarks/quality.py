"""What the summaries are worth: `python -m benchmarks.quality [--only same|rouge|long]`.

Three questions, with SmolLM2-135M-Instruct on vLLM in float32, greedy:

- `same`: are batchrun's summaries those that vLLM's `LLM.generate` gives for the same prompts? READMEs of
  installed packages that fit the context.
- `rouge`: how near are they to the one line by which a package is described, and how near are a document's
  first words (`lead`)? The same READMEs, and the descriptions of installed Debian packages.
- `long`: does map-reduce tell more of a long document than its beginning does (`truncate`)? READMEs and
  documents of Debian's linux-doc-6.1, if it is installed, of 4,000 to 25,000 tokens. A part of a document
  counts as touched where the summary has a word of more than four letters that this part has and at most a
  third of the parts have. Such words are common: *above chance* is what a summary touches beyond what the
  summaries of the other documents touch in the mean.

Brackets hold 95 % bootstrap intervals over documents. A document without a summary scores as an empty one.
The same machine gives the same documents, and `--readmes 10` the first ten of `--readmes 100`. Seconds are
those of whole processes, starts included.
"""

import argparse
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from batchrun.corpus.corpus import ColumnWishes, open_corpus
from batchrun.engines.vllm_start import prepare_environment
from batchrun.insight.quality import share_repeated
from batchrun.job import Job, open_job
from batchrun.preparation import find_corpus, plan_settings
from batchrun.prompts.parts import Splitter, title_of
from batchrun.workspace import find_workspace
from benchmarks.comparison import bare
from benchmarks.corpora import Text, descriptions, fitting_readmes, long_documents
from benchmarks.scores import (
    Floats,
    num_words,
    numbers_found,
    percent,
    rouge,
    share_touched,
    telling_words,
)
from tests.materials.smollm2 import FOLDER as SMOLLM2
from tests.materials.smollm2 import make_smollm2

CHECKOUT = Path(__file__).parents[1]
CONTEXT, BATCHED_TOKENS, SEQUENCES = 2048, 2048, 32
PACKAGE_QUESTION = "Summarize what this software package does in one or two sentences."
LONG_QUESTION = "Summarize the document in at most three sentences."
SPEC = """
model = "{model}"

[prompt]
instruction = "{question}"

[output]
max_tokens = {max_tokens}

[long_documents]
policy = "{policy}"

[engine]
kind = "{kind}"
dtype = "float32"
max_model_len = {context}
max_num_batched_tokens = {batched_tokens}
max_num_seqs = {sequences}
"""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """Output rows in the corpus's order, and the seconds they took."""

    rows: list[dict[str, Any]]
    seconds: float

    @property
    def summaries(self) -> list[str]:
        return [row["summary"] or "" for row in self.rows]


class Bench:
    """A workspace with the jobs `summarize`, `lead`, `map_reduce` and `truncate`."""

    def __init__(self, home: Path, max_tokens: int) -> None:
        self.home = home
        self.max_tokens = max_tokens
        (home / "jobs").mkdir()
        self._write_spec("summarize", PACKAGE_QUESTION)
        self._write_spec("lead", PACKAGE_QUESTION, kind="lead")
        self._write_spec("map_reduce", LONG_QUESTION)
        self._write_spec("truncate", LONG_QUESTION, policy="truncate")

    def _write_spec(
        self, name: str, question: str, *, kind: str = "vllm", policy: str = "map_reduce"
    ) -> None:
        text = SPEC.format(
            model=SMOLLM2,
            question=question,
            max_tokens=self.max_tokens,
            policy=policy,
            kind=kind,
            context=CONTEXT,
            batched_tokens=BATCHED_TOKENS,
            sequences=SEQUENCES,
        )
        (self.home / "jobs" / f"{name}.toml").write_text(text)

    @cache  # noqa: B019 - there is one bench
    def job(self, name: str) -> Job:
        """For its tokenizer and prompts."""
        return open_job(
            find_workspace(str(self.home)), self.home / "jobs" / f"{name}.toml", name=None, seed=0
        )

    def write(self, name: str, texts: Sequence[Text]) -> Path:
        path = self.home / f"{name}.parquet"
        pq.write_table(pa.table({"id": [it.id for it in texts], "text": [it.text for it in texts]}), path)
        return path

    @cache  # noqa: B019
    def submit(self, corpus: Path, job: str) -> Arm:
        """Run batchrun, this checkout's, as a person runs it. Raises CalledProcessError where it fails."""
        output = self.home / f"{corpus.stem}.{job}.parquet"
        words = ["submit", corpus.name, "--job", job, "-o", output.name, "--max-error-rate", "1", "--quiet"]
        paths = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
        started = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "batchrun", *words],
            check=True,
            cwd=self.home,
            env=os.environ | {"PYTHONPATH": paths},
        )
        seconds = time.monotonic() - started
        return Arm(rows=pq.read_table(output).to_pylist(), seconds=seconds)


def prompts_of(job: Job, corpus: Path) -> list[list[int]]:
    """The token ids that batchrun makes of a corpus whose documents fit, in its order."""
    given = find_corpus(job, [str(corpus)], ColumnWishes(), None)
    texts = [text for rows in open_corpus(given.files, given.wishes, None).batches() for text in rows.texts]
    tokens, frame = job.tokenizer.encode_documents([text or "" for text in texts]), job.prompts.document({})
    bounds = zip(tokens.offsets, tokens.offsets[1:], strict=False)
    return [frame.around(tokens.ids[start:end].tolist()) for start, end in bounds]


def generate(prompts: list[list[int]], max_tokens: int, sequences: int) -> list[str]:
    """What vLLM says to prompts. Loads it into this process."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    prepare_environment()
    from vllm import LLM, SamplingParams, TokensPrompt

    llm = LLM(
        model=str(SMOLLM2),
        dtype="float32",
        max_model_len=CONTEXT,
        max_num_batched_tokens=BATCHED_TOKENS,
        max_num_seqs=sequences,
        enforce_eager=True,
        use_tqdm_on_load=False,
        kv_cache_memory_bytes=2**30,
    )
    greedy = SamplingParams(temperature=0, max_tokens=max_tokens)
    asked = [TokensPrompt(prompt_token_ids=prompt) for prompt in prompts]
    return [output.outputs[0].text for output in llm.generate(asked, greedy, use_tqdm=False)]


def generate_elsewhere(
    prompts: list[list[int]], max_tokens: int, sequences: int = SEQUENCES
) -> tuple[list[str], float]:
    """`generate` in a process of its own, and its seconds."""
    started = time.monotonic()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        said = pool.submit(generate, prompts, max_tokens, sequences).result()
    return said, time.monotonic() - started


def measure_same(bench: Bench, corpus: Path) -> None:
    header("against `LLM.generate`", "documents", "equal", "different", "batchrun s", "`LLM.generate` s")
    arm, prompts = bench.submit(corpus, "summarize"), prompts_of(bench.job("summarize"), corpus)
    straight, seconds = generate_elsewhere(prompts, bench.max_tokens)
    pairs = zip(arm.summaries, straight, strict=True)
    different = [place for place, (ours, theirs) in enumerate(pairs) if bare(ours) != bare(theirs)]
    size = len(prompts)
    line("READMEs", size, size - len(different), len(different), f"{arm.seconds:.0f}", f"{seconds:.0f}")
    if different:
        alone, _ = generate_elsewhere([prompts[place] for place in different], bench.max_tokens, 1)
        moved = sum(straight[place] != said for place, said in zip(different, alone, strict=True))
        names = ", ".join(str(arm.rows[place]["doc_id"]) for place in different)
        print(f"\ndifferent: {names}; {moved} of them differ between LLM.generate in a batch and alone, too")


def measure_rouge(bench: Bench, corpora: dict[str, tuple[Path, list[Text]]]) -> None:
    header("ROUGE F1", "summary", "documents", "words", "ROUGE-1", "ROUGE-2", "ROUGE-L", "no summary", "s")
    for name, (corpus, texts) in corpora.items():
        references = [it.reference for it in texts]
        scores = {}
        for kind, job in (("lead", "lead"), ("model", "summarize")):
            arm = bench.submit(corpus, job)
            scores[kind] = rouge(references, arm.summaries)
            means = [percent(values) for values in scores[kind].values()]
            words = f"{mean(map(num_words, arm.summaries)):.0f}"
            line(name, kind, len(texts), words, *means, arm.summaries.count(""), f"{arm.seconds:.0f}")
        gains = [percent(values - scores["lead"][kind]) for kind, values in scores["model"].items()]
        line(name, "model − lead", len(texts), "", *gains, "", "")
        words = f"{mean(map(num_words, references)):.0f}"
        told = sum(it.reference.lower() in it.text.lower() for it in texts)
        line(name, f"the reference; {told} stand word for word in the document", len(texts), words, *[""] * 5)


def measure_long(bench: Bench, number: int) -> None:
    header(
        "long documents", "documents", "parts", "parts touched, %", "above chance, %",
        "repeated 4-grams, %", "numbers found", "no summary", "s",
    )  # fmt: skip
    job = bench.job("map_reduce")
    texts = long_documents(job, number)
    corpus = bench.write("long", texts)
    telling = [telling_words(parts_of(job, it.text)) for it in texts]
    shares = []
    for policy, name in (("truncate", "truncate"), ("map-reduce", "map_reduce")):
        arm = bench.submit(corpus, name)
        said = arm.summaries
        touched = np.array([[share_touched(one, words) for one in said] for words in telling])
        repeated = np.array([share_repeated(one) for one in said])
        shares.append((touched.diagonal(), above_chance(touched), repeated))
        found = [numbers_found(one, it.text) for one, it in zip(said, texts, strict=True)]
        numbers = f"{sum(good for good, _ in found)} of {sum(every for _, every in found)}"
        means = map(percent, shares[-1])
        num_parts = sum(map(len, telling))
        line(policy, len(texts), num_parts, *means, numbers, said.count(""), f"{arm.seconds:.0f}")
    gains = [percent(after - before) for before, after in zip(*shares, strict=True)]
    line("map-reduce − truncate", len(texts), "", *gains, "", "", "")


def above_chance(touched: Floats) -> Floats:
    """What each document's summary touches of it beyond what the others' do: rows are documents, columns
    summaries. Nothing is known by one document alone.
    """
    own, size = touched.diagonal(), len(touched)
    return own - (touched.sum(axis=1) - own) / (size - 1) if size > 1 else np.full(1, np.nan)


def parts_of(job: Job, text: str) -> list[str]:
    """The parts that map-reduce makes of a document."""
    settings, title = plan_settings(job), title_of(text, {})
    token_ids = job.tokenizer.encode_documents([text]).ids
    splitter = Splitter(job.tokenizer, overlap_share=settings.overlap_share)
    parts = splitter.split(text, token_ids, settings.part_room(title, {}))
    return [text[part.start : part.end] for part in parts]


def header(*names: str) -> None:
    print()
    line(*names)
    line("---", *["---:"] * (len(names) - 1))


def line(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="What the summaries are worth: benchmarks/quality.py says more."
    )
    for name, number in (("readmes", 100), ("descriptions", 200), ("long", 20), ("max-tokens", 48)):
        parser.add_argument(f"--{name}", type=int, default=number, metavar="N")
    parser.add_argument("--only", choices=["same", "rouge", "long"])
    asked = parser.parse_args()
    wanted = {asked.only} if asked.only else {"same", "rouge", "long"}
    make_smollm2(SMOLLM2)
    print(
        f"SmolLM2-135M-Instruct on vLLM, float32, greedy, context {CONTEXT:,}, at most {asked.max_tokens} "
        f"tokens a summary, {os.cpu_count()} cores"
    )
    with TemporaryDirectory(prefix="quality-") as folder:
        measure(Bench(Path(folder), asked.max_tokens), asked, wanted)


def measure(bench: Bench, asked: argparse.Namespace, wanted: set[str]) -> None:
    """Print the tables, a line as soon as it is known."""
    job = bench.job("summarize")
    if wanted & {"same", "rouge"}:
        chosen = fitting_readmes(job)[: asked.readmes]
        corpus = bench.write("readmes", chosen)
    if "same" in wanted:
        measure_same(bench, corpus)
    if "rouge" in wanted:
        described = descriptions()[: asked.descriptions]
        corpora = {
            "READMEs": (corpus, chosen),
            "descriptions": (bench.write("descriptions", described), described),
        }
        measure_rouge(bench, corpora)
    if "long" in wanted:
        measure_long(bench, asked.long)


if __name__ == "__main__":
    main()
