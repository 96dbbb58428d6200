"""Every kind of file of a workspace, damaged in every way, after a run that was stopped and after a complete one.

Held in every cell: no command ends with a traceback, nothing that is published is wrong, what is damaged is named,
and the next submit, or the next after what the message says was done, ends with the output of an undisturbed run and
a workspace that `verify` finds whole.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrun.engines.lead import LeadEngine
from batchrun.job import open_job
from batchrun.profile import Profile, write_profile
from batchrun.records import Completion, ErrorType, FinishReason, Request
from batchrun.subject import subject_of
from batchrun.workspace import Workspace, corpus_id
from tests.commands import Bench, Result, set_engine, texts

COMPLETE, UNWRITABLE, INTERRUPTED, CONFIG = 0, 73, 75, 78
STOP_AFTER = 4
"""Documents of a run that is stopped."""
REJECTED = " is rejected by the engine, word for word." * 12
REJECTED_FROM = 110
"""Tokens of a prompt; only REJECTED's is as long and fits."""
JOB = "summarize"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A workspace, how it was in each situation, and the output of an undisturbed run."""

    home: Path
    pristine: dict[str, Path]
    expected: pa.Table


def corpus_texts(word: str) -> list[str]:
    """An empty text, a duplicate, one that the engine rejects and one that is too long are among them."""
    found = [text.replace("Document", word) for text in texts(12)]
    return [*found[:6], "", found[2], *found[6:], word + REJECTED, "far too long " * 400]


def stopping() -> Callable[[LeadEngine], list[Completion]]:
    """A step of the engine that asks the process to stop when STOP_AFTER documents have come out of it."""
    real, num_done = LeadEngine.step, 0

    def step(engine: LeadEngine) -> list[Completion]:
        nonlocal num_done
        if num_done >= STOP_AFTER:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.2)
            return []
        completions = real(engine)
        num_done += len(completions)
        return completions

    return step


def rejecting(real: Callable[..., Completion]) -> Callable[..., Completion]:
    """For a row of the spool that outlives a complete run."""

    def completion(engine: LeadEngine, request: Request, output: list[int], cached: int) -> Completion:
        done = real(engine, request, output, cached)
        if len(request.prompt_token_ids) < REJECTED_FROM:
            return done
        return msgspec.structs.replace(
            done,
            token_ids=[],
            finish_reason=FinishReason.ERROR,
            error_type=ErrorType.ENGINE_REJECTED,
            error="no",
        )

    return completion


@pytest.fixture(scope="module")
def scene(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Two corpora of a job, each stopped twice, then complete; another job; a profile."""
    home, base = tmp_path_factory.mktemp("damage") / "home", tmp_path_factory.mktemp("pristine")
    unheard: Any = SimpleNamespace(readouterr=lambda: SimpleNamespace(out="", err=""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LeadEngine, "_completion", rejecting(LeadEngine._completion))
        bench = Bench(home, tiny_llama, unheard)
        set_engine(home / "jobs" / f"{JOB}.toml", max_num_seqs=2)
        set_engine(bench.write_spec(name="second"), max_num_seqs=2, max_model_len=500)
        write_profiles(home)
        ids = {"id": list(range(100, 116))}
        paths = [
            bench.corpus(corpus_texts("Document")),
            bench.corpus(corpus_texts("Leaf"), "other.parquet", **ids),
        ]
        named = ["--job", "second", "-o", home / "second.summaries.parquet", "--max-error-rate", "1"]
        assert COMPLETE == bench.run("submit", paths[1], *named).code
        for path in paths * 2:
            with patch.context() as stop:
                stop.setattr(LeadEngine, "step", stopping())
                assert INTERRUPTED == submit(bench, path).code
        shutil.copytree(home, base / "stopped")
        for path in paths:
            assert COMPLETE == submit(bench, path).code
        shutil.copytree(home, base / "complete")
        yield Scene(
            home=home,
            pristine={name: base / name for name in ("stopped", "complete")},
            expected=pq.read_table(home / "corpus.summaries.parquet"),
        )


def write_profiles(home: Path) -> None:
    job = open_job(Workspace(home=home), home / "jobs" / f"{JOB}.toml", name=None, seed=0)
    here = subject_of(job, job.resolve())
    for of in (here, msgspec.structs.replace(here, device="another")):
        profile = Profile(of=of, prefill=((1, 1e4),), decode=((1, 1e4),), max_num_batched_tokens=64)
        write_profile(home / "checkpoints" / "profiles", profile)


def submit(bench: Bench, corpus: Path) -> Result:
    return bench.submit(corpus, "--max-error-rate", "1")


# -- files by kind: where they lie, of the first corpus or job and of another -------------------------

SITUATIONS = ("stopped", "complete")
CORPUS, SPOOL = "checkpoints/{job}/seed-0/corpora/{corpus}", "buckets/{job}/seed-0/{corpus}"
FILES = {
    "segment": "checkpoints/{job}/seed-0/segments/*.parquet",
    "run record": CORPUS + "/runs/*.json",
    "plan.json": CORPUS + "/plan.json",
    "plan.parquet": CORPUS + "/plan.parquet",
    "carried.parquet": CORPUS + "/carried.parquet",
    "spool part": SPOOL + "/*/part-*.parquet",
    "requests": CORPUS + "/requests/*.parquet",
    "job.json": "checkpoints/{job}/job.json",
    "spec": "jobs/{name}.toml",
    "models.json": "checkpoints/models.json",
    "profile": "checkpoints/profiles/*.json",
    "output": "{stem}.summaries.parquet",
}


def find(home: Path, kind: str) -> tuple[Path, Path]:
    """A file of this kind, and another of the same corpus and job, else of another."""
    [job] = [path.name for path in home.glob(f"checkpoints/{JOB}-*")]
    [second] = [path.name for path in home.glob("checkpoints/second-*")]
    ids = {stem: corpus_id([str(home / f"{stem}.parquet")], None) for stem in ("corpus", "other")}
    first = {"job": job, "name": JOB, "stem": "corpus", "corpus": ids["corpus"]}
    elsewhere = [{"stem": "other", "corpus": ids["other"]}, {"job": second, "name": "second"}]
    places = [first, *(first | other for other in elsewhere)]
    path, *others = dict.fromkeys(
        path for place in places for path in sorted(home.glob(FILES[kind].format(**place)))
    )
    if kind == "profile":
        path, *others = sorted([path, *others], key=lambda each: "another" in each.name)
    return path, others[0] if others else path


# -- damages ------------------------------------------------------------------------------------------


def flip(place: float) -> Callable[[Path, Path], None]:
    """One bit, at a share of the file's length."""

    def damage(path: Path, _: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int((len(content) - 1) * place)] ^= 1
        path.write_bytes(content)

    return damage


def swap(path: Path, another: Path) -> None:
    mine, its = path.read_bytes(), another.read_bytes()
    path.write_bytes(its)
    another.write_bytes(mine)


DAMAGES: dict[str, Callable[[Path, Path], object]] = {
    "cut to half": lambda path, _: os.truncate(path, path.stat().st_size // 2),
    "cut to nothing": lambda path, _: os.truncate(path, 0),
    "longer": lambda path, _: path.write_bytes(path.read_bytes() + b"\x00longer"),
    "flipped in its head": flip(0.02),
    "flipped in its middle": flip(0.5),
    "flipped in its foot": flip(0.96),
    "swapped": swap,
    "renamed": lambda path, _: path.rename(path.with_name("renamed" + path.suffix)),
    "gone": lambda path, _: path.unlink(),
}
FLIPS = [name for name in DAMAGES if name.startswith("flipped")]
ALONE = {("models.json", "swapped")}
UNNAMED = {
    # What nobody can know of, or nothing depends on.
    "segment": {"gone"},
    "run record": {"gone"},
    "job.json": {"renamed", "gone"},  # then there is no job, and submit makes it
    "output": {*FLIPS, "renamed", "gone"},  # more metadata than pages in a file this small
    "spool part": {"renamed", "gone"},
    "requests": {"flipped in its foot", "swapped", "renamed", "gone"},
    "models.json": {"renamed", "gone"},
    "profile": set(DAMAGES),  # told where there is something to foretell
    "spec": {*FLIPS, "swapped"},
}


def cells() -> list[Any]:
    """All of them; an eleventh is for every day, spread over kinds, damages and situations, the rest a proof."""
    found = []
    for number, (kind, damage, situation) in enumerate(product(FILES, DAMAGES, SITUATIONS)):
        if (kind, damage) in ALONE or (kind, situation) == ("output", "stopped"):
            continue
        marks = [] if number % 11 == 0 else [pytest.mark.proof]
        found.append(pytest.param(situation, kind, damage, marks=marks))
    return found


@pytest.mark.parametrize(("situation", "kind", "damage"), cells())
def test_a_file_is_damaged(
    situation: str,
    kind: str,
    damage: str,
    scene: Scene,
    tiny_llama: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing wrong comes out, it is named, and a submit later all is as it would have been."""
    shutil.rmtree(scene.home)
    shutil.copytree(scene.pristine[situation], scene.home)
    bench = Bench(scene.home, tiny_llama, capsys, writes_spec=False)
    path, another = find(scene.home, kind)
    kept = path.read_bytes()
    DAMAGES[damage](path, another)
    said = look(bench, scene.expected)
    result = submit(bench, bench.home / "corpus.parquet")
    said += result.err
    do_as_told(result, kind, path, kept)
    if result.code != COMPLETE or kind == "spec":
        result = submit(bench, bench.home / "corpus.parquet")
    assert COMPLETE == result.code, result.err
    assert scene.expected.equals(pq.read_table(bench.home / "corpus.summaries.parquet"))
    if damage == "swapped":
        mend_another(bench, kind, another)
    checked = bench.run("verify", job_of(bench))
    assert COMPLETE == checked.code, checked.err
    if damage not in UNNAMED.get(kind, ()):
        assert is_named(path, said), said


def test_a_flip_in_the_data_of_an_output_is_found(
    scene: Scene, tiny_llama: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in a column that no plan and no memo table has."""
    shutil.rmtree(scene.home)
    shutil.copytree(scene.pristine["complete"], scene.home)
    bench = Bench(scene.home, tiny_llama, capsys, writes_spec=False)
    path = bench.home / "corpus.summaries.parquet"
    good = path.read_bytes()
    group = pq.read_metadata(path).row_group(0)
    for column in (group.column(number) for number in range(group.num_columns)):
        if column.path_in_schema in {"doc_id", "engine"}:
            last = column.data_page_offset + column.total_compressed_size - 1
            if column.dictionary_page_offset is not None:
                last -= column.data_page_offset - column.dictionary_page_offset
            path.write_bytes(good[:last] + bytes([good[last] ^ 1]) + good[last + 1 :])
            found = bench.run("verify", job_of(bench))
            assert INTERRUPTED == found.code, column.path_in_schema
            assert f"DAMAGED  {path}" in found.err


def do_as_told(result: Result, kind: str, path: Path, kept: bytes) -> None:
    """What the message says of a file that a submit does not touch: it is moved away, or restored."""
    if result.code in (UNWRITABLE, CONFIG):
        assert kind in {"spec", "job.json", "output"}, result.err
        assert str(path) in result.err
    else:
        assert result.code == COMPLETE, result.err
    if kind == "spec":
        path.write_bytes(kept)
    elif result.code != COMPLETE:
        path.rename(path.with_name("moved-away"))


def mend_another(bench: Bench, kind: str, another: Path) -> None:
    """The other of two files that were swapped."""
    if kind in {"output", "job.json"}:
        another.unlink()
    assert COMPLETE == submit(bench, bench.home / "other.parquet").code


def is_named(path: Path, said: str) -> bool:
    """By the name that it had or has; request telemetry is told beside what is well."""
    lines = [line for line in said.splitlines() if not line.startswith("ok ") or "(damaged" in line]
    return any(path.name in line or "/renamed." in line for line in lines)


def job_of(bench: Bench) -> str:
    [job] = [path.name for path in bench.home.glob(f"checkpoints/{JOB}-04*")]
    return job


def look(bench: Bench, expected: pa.Table) -> str:
    """Call what only reads; returns what it says. What it publishes is right, and the rest is pending."""
    job, target = job_of(bench), bench.home / "so-far.parquet"
    given = corpus_id([str(bench.home / "corpus.parquet")], None)
    commands = [["status"], ["verify", job], ["results", job, "--corpus", given, "-o", str(target)]]
    results = [bench.run(*words) for words in commands]
    for result in results:
        assert result.code in (COMPLETE, INTERRUPTED, CONFIG), result.err
    if target.exists():
        rows = zip(expected.to_pylist(), pq.read_table(target).to_pylist(), strict=True)
        assert [] == [row for due, row in rows if row != due and row["status"] != "pending"]
    return "".join(result.err for result in results)
