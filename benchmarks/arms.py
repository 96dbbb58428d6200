"""How an arm of `benchmarks.compare` is run, each in processes of its own: batchrun as a person runs it, others by
`benchmarks.rivals`.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from batchrun.job import Job, open_job
from batchrun.profile import Profile
from batchrun.workspace import find_workspace
from benchmarks.assignment import Assignment, read_answers, write
from benchmarks.comparison import Measured, Output
from benchmarks.quality import prompts_of
from benchmarks.rivals import RIVALS
from benchmarks.work import Work

CHECKOUT = Path(__file__).parents[1]
DTYPE, BATCHED_TOKENS, SEQUENCES = "float32", 2048, 32
PROMPT_ROOM = 128
"""Tokens of a context beside document and output: more than the instruction and the chat template take."""
SPEC = """
model = "{model}"

[output]
max_tokens = {max_tokens}

[engine]
kind = "{kind}"
dtype = "{dtype}"
max_model_len = {context}
max_num_batched_tokens = {batched_tokens}
max_num_seqs = {sequences}
speculation = "{speculation}"

[engine.options]
kv_cache_memory_bytes = {kv_bytes}
"""
KINDS = {
    "batchrun": ("vllm", "off"),
    "batchrun-ngram": ("vllm", "ngram"),
    "batchrun-transformers": ("transformers", "off"),
}
"""Of batchrun's arms: engine and speculation."""
WORDS_KEPT = 800
"""Characters of what a process said last before it failed."""


class ArmError(Exception):
    """An arm ended without its outputs; the text is what it said last."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where arms run: a scratch folder, the model, and the longest document in tokens."""

    folder: Path
    model: Path
    longest: int

    def job(self) -> Job:
        """For its tokenizer and prompts; every arm's prompts are those of this job."""
        home = self.folder / "prompts"
        self.write_spec(home, "batchrun", Work(name="prompts"))
        return open_job(find_workspace(str(home)), home / "jobs" / "summarize.toml", name=None, seed=0)

    def write_spec(self, home: Path, arm: str, work: Work) -> None:
        kind, speculation = KINDS[arm]
        (home / "jobs").mkdir(parents=True, exist_ok=True)
        text = SPEC.format(
            model=self.model,
            kind=kind,
            speculation=speculation,
            dtype=DTYPE,
            max_tokens=work.max_tokens,
            context=self.context(work),
            batched_tokens=BATCHED_TOKENS,
            sequences=SEQUENCES,
            kv_bytes=work.kv_cache_memory_bytes,
        )
        (home / "jobs" / "summarize.toml").write_text(text)

    def context(self, work: Work) -> int:
        return self.longest + PROMPT_ROOM + work.max_tokens

    def write_corpus(self, work: Work) -> Path:
        path = self.folder / f"{work.name}.parquet"
        columns = {"id": [it.id for it in work.texts], "text": [it.text for it in work.texts]}
        pq.write_table(pa.table(columns), path)
        return path

    def assignment(self, work: Work, corpus: Path, job: Job) -> Assignment:
        """The work as batchrun's own prompts, for the other arms."""
        prompts = prompts_of(job, corpus)
        return Assignment(
            model=str(self.model),
            dtype=DTYPE,
            prompts=prompts,
            texts=[job.tokenizer.spelt_out(prompt) for prompt in prompts],
            max_tokens=work.max_tokens,
            max_model_len=self.context(work),
            max_num_batched_tokens=BATCHED_TOKENS,
            max_num_seqs=SEQUENCES,
            kv_cache_memory_bytes=work.kv_cache_memory_bytes,
        )

    def run(self, arm: str, work: Work, corpus: Path, asked: Assignment, job: Job) -> Measured:
        """Run an arm to its end. Raises ArmError."""
        with TemporaryDirectory(prefix=f"{arm}-", dir=self.folder) as name:
            if arm in RIVALS:
                return _run_rival(arm, Path(name), asked, job)
            self.write_spec(Path(name), arm, work)
            return _submit(Path(name), corpus)

    def calibrate(self, work: Work, seconds: float) -> Profile:
        """The rates of vLLM on this machine, by `batchrun calibrate`. Raises ArmError."""
        with TemporaryDirectory(prefix="calibrate-", dir=self.folder) as name:
            self.write_spec(Path(name), "batchrun", work)
            words = ["-m", "batchrun", "calibrate", "--seconds", str(seconds)]
            tried = [
                "--batched-tokens",
                str(BATCHED_TOKENS),
            ]  # the spec's own alone: no other engine is started
            said = _last_json(_run(Path(name), [*words, *tried, "--json"]))
            return msgspec.convert(said["profile"], Profile)


def ceiling_seconds(profile: Profile, asked: Assignment, output_tokens: int) -> float:
    """The least time for the prompts and as many output tokens: reading and writing, each at its best."""
    return profile.ceiling_seconds([(1, len(prompt)) for prompt in asked.prompts], output_tokens)


def _run_rival(arm: str, scratch: Path, asked: Assignment, job: Job) -> Measured:
    given, answered = write(scratch / "assignment.json", asked), scratch / "answers.json"
    started = time.monotonic()
    _run(scratch, ["-m", "benchmarks.rivals", arm, str(given), str(answered)])
    whole = time.monotonic() - started
    if not answered.exists():
        raise ArmError("it ended well, and without answers")
    answers = read_answers(answered)
    texts = job.tokenizer.decode(answers.token_ids)
    outputs = tuple(
        Output(text=text, num_tokens=len(token_ids), token_ids=tuple(token_ids))
        for text, token_ids in zip(texts, answers.token_ids, strict=True)
    )
    return Measured(
        whole_seconds=whole,
        running_seconds=answers.running_seconds,
        outputs=outputs,
        remark=answers.remark,
    )


def _submit(home: Path, corpus: Path) -> Measured:
    words = ["submit", str(corpus), "-o", "out.parquet", "--max-error-rate", "1", "--json", "--quiet"]
    started = time.monotonic()
    said = _last_json(_run(home, ["-m", "batchrun", *words]))
    whole = time.monotonic() - started
    rows = pq.read_table(home / "out.parquet").to_pylist()
    return Measured(
        whole_seconds=whole,
        running_seconds=said["seconds"]["running"],
        outputs=tuple(_output(row) for row in rows),
        remark=_remark(home),
    )


def _remark(home: Path) -> str:
    """What the run's record says of padding and of the prefix cache."""
    [path] = home.glob("checkpoints/*/seed-*/corpora/*/runs/*.json")
    record = json.loads(path.read_bytes())
    padding, cached = record["metrics"]["padding_share"], record["tokens"]["cached"]
    parts = [f"padding share {padding:.2f}"] if padding else []
    parts += [f"{cached:,} tokens of prompts from the prefix cache"] if cached else []
    return ", ".join(parts)


def _output(row: dict[str, Any]) -> Output:
    is_cut = row["finish_reason"] == "repetition"
    return Output(text=row["summary"] or "", num_tokens=row["output_tokens"] or 0, is_cut=is_cut)


def _run(folder: Path, words: Sequence[str]) -> str:
    """Standard output of a Python process of this checkout. Raises ArmError."""
    paths = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    # vLLM would keep one core to itself where its core is a process of its own, as in `vllm run-batch`.
    environment = {"VLLM_CPU_NUM_OF_RESERVED_CPU": "0", "VLLM_LOGGING_LEVEL": "ERROR"}
    log = folder / "stderr.log"
    with log.open("wb") as stream:
        done = subprocess.run(
            [sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=stream,
            check=False,
            cwd=folder,
            env=environment | os.environ | {"PYTHONPATH": paths},
        )
    if done.returncode:
        said = log.read_text(errors="replace") + done.stdout.decode(errors="replace")
        raise ArmError(f"it ended with {done.returncode}: {said.strip()[-WORDS_KEPT:]}")
    return done.stdout.decode(errors="replace")


def _last_json(out: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return said
