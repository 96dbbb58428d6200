"""`batchrun gc`: says what nobody needs any more, takes it away when told, and leaves a job that works."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from batchrun import atomic_file, collection
from batchrun.planning import spool
from batchrun.store.lock import RunLock
from batchrun.workspace import Workspace
from tests.ages import days_ago, days_later
from tests.commands import Bench, Result, texts
from tests.ledger import calls
from tests.test_accounting import failing

OLD, NEW = texts(6), [*texts(4), "one of tonight", "two of tonight"]
"""Two nights: two texts of the old one are not in the new one."""


@pytest.fixture
def nights(bench: Bench) -> tuple[Bench, str]:
    """A job with a night of 40 days ago and one of today; both files are still there."""
    with days_ago(40):
        bench.submit(bench.corpus(OLD, "old.parquet"))
    result = bench.submit(bench.corpus(NEW, "new.parquet"))
    assert [0, 2, 4, 2] == [
        result.code,
        *(result.json["rows"][name] for name in ("computed", "reused", "departed")),
    ]
    return bench, result.json["job_id"]


def files(home: Path) -> dict[str, bytes]:
    """Every file of the stores, but for locks."""
    return {
        str(path.relative_to(home)): path.read_bytes()
        for folder in ("checkpoints", "buckets")
        for path in sorted((home / folder).rglob("*"))
        if path.is_file() and path.suffix != ".lock" and path.name != "lock"
    }


def kinds(result: Result) -> list[str]:
    return sorted(item["kind"] for item in result.json["items"])


def test_without_yes_it_only_says_what_would_go(nights: tuple[Bench, str]) -> None:
    """Each thing with its size on standard output, the total and the next step on standard error."""
    bench, _ = nights
    before = files(bench.home)
    result = bench.run("gc")
    assert 0 == result.code
    assert "old.parquet, not used since" in result.out
    assert "2 of 8 rows, in 1 segments" in result.out
    assert "KiB  plan" in result.out
    assert "would be taken away; do it: the same with --yes" in result.err
    said = bench.run("gc", "--json")
    assert [False, 30, 0] == [said.json[name] for name in ("done", "older_than_days", "exit_code")]
    assert ["memo", "plan"] == kinds(said)
    assert said.json["num_bytes"] == sum(item["num_bytes"] for item in said.json["items"])
    assert before == files(bench.home)


def test_with_yes_it_goes_and_everything_still_works(nights: tuple[Bench, str]) -> None:
    """Plan and unneeded summaries of the old night go; run records stay; each command works or says what to do."""
    bench, job = nights
    done = bench.run("gc", "--yes", "--json")
    assert [0, True, ["memo", "plan"]] == [done.code, done.json["done"], kinds(done)]
    assert "nothing to take away" in bench.run("gc").err
    assert 2 == len(list(bench.home.glob("checkpoints/*/seed-0/corpora/*/runs/*.json")))
    assert 1 == len(list(bench.home.glob("checkpoints/*/seed-0/corpora/*/plan.parquet")))
    verified = bench.run("verify", job)
    assert 0 == verified.code, verified.err
    assert "its plan was taken away by gc" in verified.err
    assert [0, 0] == computed_by(bench, ["resume", job], ["submit", bench.home / "new.parquet"])
    assert 0 == bench.run("results", job, "-o", bench.home / "again.parquet").code
    assert bench.output("new.summaries.parquet") == bench.output("again.parquet")
    old = corpus_id(bench, "old.parquet")
    for words in (["resume", job, "--corpus", old], ["results", job, "--corpus", old, "--only", "failed"]):
        refused = bench.run(*words)
        assert 75 == refused.code
        assert "Submit the corpus again" in refused.err
    assert 0 == bench.run("verify", job).code
    assert [2] == computed_by(bench, ["submit", bench.home / "old.parquet"])  # those that were to go
    assert 0 == bench.run("verify", job).code


def computed_by(bench: Bench, *commands: list[Any]) -> list[int]:
    results = [bench.run(*words, "--json") for words in commands]
    assert [0] * len(commands) == [result.code for result in results]
    return [result.json["rows"]["computed"] for result in results]


def corpus_id(bench: Bench, name: str) -> str:
    runs = bench.run("status", "--json").json
    [found] = [run["corpus_id"] for run in runs if run["corpus"] == [str(bench.home / name)]]
    return str(found)


def test_what_is_used_within_the_days_stays(nights: tuple[Bench, str]) -> None:
    """--older-than moves the line; so does a new submit of an old corpus."""
    bench, _ = nights
    assert [] == bench.run("gc", "--older-than", "60", "--json").json["items"]
    bench.submit(bench.home / "old.parquet")
    assert [] == bench.run("gc", "--json").json["items"]


def test_a_job_of_which_nothing_is_used_is_emptied(nights: tuple[Bench, str]) -> None:
    """Its record and its runs stay, and the next submit computes all again."""
    bench, job = nights
    with days_later(31):
        assert ["memo", "plan", "plan", "requests", "requests"] == kinds(
            bench.run("gc", job, "--yes", "--json")
        )
    assert [] == bench.segments()
    assert (bench.home / "checkpoints" / job / "job.json").exists()
    assert 0 == bench.run("verify", job).code
    assert "complete" in bench.run("status", job).out
    assert [6] == computed_by(bench, ["submit", bench.home / "new.parquet"])


def test_spools_of_completed_plans_go_and_those_with_failed_rows_stay(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`resume --failed` works without the corpus; what a kill left of a finished spool goes."""
    from batchrun.records import ErrorType

    with monkeypatch.context() as patch:
        failing(patch, ErrorType.ENGINE_REJECTED)
        bench.submit(bench.corpus(["this one fails"], "failed.parquet"))
    with monkeypatch.context() as patch:
        patch.setattr(spool, "keep_only", lambda *_: None)
        job = bench.submit(bench.corpus(texts(3), "whole.parquet")).json["job_id"]
    bench.run("plan", bench.corpus(texts(5), "planned.parquet"))
    result = bench.run("gc", "--yes", "--json")
    assert ["spool"] == kinds(result)
    assert corpus_id(bench, "whole.parquet") == Path(result.json["items"][0]["path"]).name
    failed = corpus_id(bench, "failed.parquet")
    assert [1] == computed_by(bench, ["resume", job, "--corpus", failed, "--failed"])
    assert [2] == computed_by(bench, ["submit", bench.home / "planned.parquet"])
    assert [0] == computed_by(bench, ["submit", bench.home / "whole.parquet"])


def test_a_plan_newer_than_the_last_run_keeps_its_spool(bench: Bench) -> None:
    """It was planned for a run to come."""
    job = bench.submit(bench.corpus(texts(3))).json["job_id"]
    bench.run("plan", bench.corpus(texts(5)))
    assert [] == bench.run("gc", "--yes", "--json").json["items"]
    (bench.home / "corpus.parquet").unlink()
    assert [2] == computed_by(bench, ["resume", job])


def test_without_yes_a_damaged_segment_is_named_and_stays(nights: tuple[Bench, str]) -> None:
    """A dry run changes nothing on disk; the rows of other segments are found as ever."""
    bench, _ = nights
    last = bench.segments()[-1]
    spoilt = last.with_name(f"{last.stem}-1.parquet")
    spoilt.write_bytes(b"spoilt")
    before = files(bench.home)
    found = bench.run("gc", "--json")
    why = f"segment {spoilt} is damaged; the next run sets it aside and computes its rows again"
    assert [why] == [left["why"] for left in found.json["left"]]
    assert ["memo", "plan"] == kinds(found)
    assert before == files(bench.home)
    assert [] == list(bench.home.glob("checkpoints/*/seed-0/damaged"))


def test_damaged_segments_go_when_they_are_old(nights: tuple[Bench, str]) -> None:
    """They were kept to be looked at."""
    bench, job = nights
    segment = bench.segments()[0]
    segment.write_bytes(b"spoilt")
    found = bench.run("gc", "--yes", "--json")
    assert any("is damaged; set aside" in left["why"] for left in found.json["left"])
    assert "damaged" not in kinds(bench.run("gc", "--json"))
    with days_later(31):
        assert "damaged" in kinds(bench.run("gc", "--yes", "--json"))
    assert [] == list(bench.home.glob("checkpoints/*/seed-0/damaged/*"))
    assert 0 == bench.run("verify", job).code


def test_what_a_run_holds_is_left_alone(nights: tuple[Bench, str]) -> None:
    """The corpus that is held keeps its plan, and its job all summaries; the other plan goes. If nothing can go: 11."""
    bench, job = nights
    paths = Workspace(home=bench.home).job(job, 0)
    lock = RunLock(paths.corpus(corpus_id(bench, "old.parquet")).lock, "a-run")
    try:
        with days_later(31):
            first = bench.run("gc", "--yes", "--json")
            assert [0, ["plan", "requests"]] == [first.code, kinds(first)]
            new = paths.corpus(corpus_id(bench, "new.parquet"))
            assert [new.checkpoint, new.requests] == [Path(item["path"]) for item in first.json["items"]]
            assert "in use by" in first.json["left"][0]["why"]
            second = bench.run("gc", "--yes")
            assert 11 == second.code
            assert f"left alone: {paths.segments}" in second.err
            assert 0 == bench.run("gc").code  # it asks nothing of anybody
    finally:
        lock.release()
    assert 0 == bench.run("verify", job).code
    assert [0] == computed_by(bench, ["submit", bench.home / "old.parquet"])


def test_no_run_begins_while_rows_are_taken_away(nights: tuple[Bench, str]) -> None:
    """A submit, a plan and another collection are told to wait; a look is not."""
    bench, job = nights
    barrier = RunLock(Workspace(home=bench.home).job(job, 0).collection_lock, "gc")
    try:
        for words in (["submit"], ["plan"]):
            refused = bench.run(*words, bench.home / "new.parquet")
            assert 11 == refused.code
            assert "the files of this job are being collected by" in refused.err
        other = bench.run("gc", "--yes")
        assert 11 == other.code
        assert "another collection goes on" in other.err
        assert 0 == bench.run("verify", job).code
    finally:
        barrier.release()
    assert 0 == bench.submit(bench.home / "new.parquet").code


def test_a_run_of_another_process_is_seen(nights: tuple[Bench, str]) -> None:
    """A lock of the kernel, not a note in a file."""
    bench, job = nights
    path = Workspace(home=bench.home).job(job, 0).corpus(corpus_id(bench, "old.parquet")).lock
    program = (
        "import sys, time; from pathlib import Path; from batchrun.store.lock import RunLock\n"
        f"lock = RunLock(Path({str(path)!r}), 'the-other'); print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "held\n" == process.stdout.readline()
        result = bench.run("gc", "--yes", "--json")
        assert "in use by run the-other" in result.json["left"][0]["why"]
        assert [11, []] == [result.code, result.json["items"]]
    finally:
        process.kill()
        process.communicate()
    assert ["memo", "plan"] == kinds(bench.run("gc", "--yes", "--json"))


def test_an_unreadable_plan_keeps_the_summaries(nights: tuple[Bench, str]) -> None:
    """What it refers to is not known, so all rows stay."""
    bench, job = nights
    plan = Workspace(home=bench.home).job(job, 0).corpus(corpus_id(bench, "new.parquet")).plan
    plan.write_bytes(plan.read_bytes()[:-9])
    result = bench.run("gc", "--yes", "--json")
    assert [0, ["plan"]] == [result.code, kinds(result)]
    assert "what it is needed for is not known" in result.json["left"][0]["why"]
    assert [0] == computed_by(bench, ["submit", bench.home / "new.parquet"])


def test_a_disk_that_fails_is_74(nights: tuple[Bench, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be taken away stays, and the next collection does it."""
    bench, job = nights

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(atomic_file, "publish", full)
        failed = bench.run("gc", "--yes")
    assert 74 == failed.code
    assert "No space left on device" in failed.err
    assert 0 == bench.run("verify", job).code
    assert ["memo", "plan"] == kinds(bench.run("gc", "--yes", "--json"))


class KilledError(BaseException):
    """A kill: what comes after does not happen."""


STEPS = ((atomic_file, "publish"), (atomic_file, "remove"), (spool, "remove"))


def kill_at(patch: pytest.MonkeyPatch, instant: int) -> None:
    """Raise at the given of the instants before and after each step that changes the disk."""
    passed = 0

    def stepping(real: Callable[..., None]) -> Callable[..., None]:
        def step(*arguments: Any) -> None:
            nonlocal passed
            for is_done in (False, True):
                if passed == instant:
                    raise KilledError
                passed += 1
                if not is_done:
                    real(*arguments)

        return step

    for module, name in STEPS:
        patch.setattr(module, name, stepping(getattr(module, name)))


def test_killed_between_any_two_steps(nights: tuple[Bench, str]) -> None:
    """Wherever a collection ends, verify finds no damage, no summary of the new night is computed again, and a
    second collection ends what the first began.
    """
    bench, job = nights
    saved = bench.home / "saved"
    shutil.copytree(bench.home / "checkpoints", saved / "checkpoints")
    shutil.copytree(bench.home / "buckets", saved / "buckets")
    instant = 0
    while killed_collection(bench, job, instant):
        verified = bench.run("verify", job)
        assert 0 == verified.code, (instant, verified.err)
        assert [0] == computed_by(bench, ["submit", bench.home / "new.parquet"]), instant
        assert 0 == bench.run("gc", "--yes").code
        assert "nothing to take away" in bench.run("gc").err, instant
        assert 0 == bench.run("verify", job).code
        for name in ("checkpoints", "buckets"):
            shutil.rmtree(bench.home / name)
            shutil.copytree(saved / name, bench.home / name)
        instant += 1
    assert 12 < instant


def killed_collection(bench: Bench, job: str, instant: int) -> bool:
    """Whether a collection was still at work at that instant."""
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, instant)
        try:
            collection.collect(Workspace(home=bench.home), [job], timedelta(days=30), lambda item: None)
        except KilledError:
            return True
    return False


def test_the_parts_of_a_document_that_grew_stay(bench: Bench) -> None:
    """They were first made for what it was before, which no plan refers to any more."""
    spec = bench.write_spec()
    spec.write_text(spec.read_text().replace('policy = "fail"', 'policy = "map_reduce"'))
    text = "".join(f"Paragraph {n} says what it says.\n\n" for n in range(200))
    computed = []
    for day in range(3):
        path = bench.corpus([text + "And a line more.\n\n" * 40 * day])
        ledger = bench.home / f"ledger-{day}"
        process = bench.start("submit", path, "--quiet", ledger=ledger)
        assert 0 == process.wait(60)
        computed.append(len(calls(ledger)))
        assert 0 == bench.run("gc", "--yes").code
    assert computed[0] > 4
    assert max(computed[1:]) < computed[0]
    job = bench.run("status", "--json").json[0]["job_id"]
    assert 0 == bench.run("verify", job).code


def test_request_telemetry_goes_when_it_is_old(bench: Bench) -> None:
    """File by file, of a corpus that is in use as well; what is younger stays, and what a run holds."""
    result = bench.submit(bench.corpus(texts(3)))
    [young] = bench.home.glob("checkpoints/*/seed-0/corpora/*/requests/*")
    old = young.with_name("20260101T000000-abcdef.parquet")
    shutil.copy(young, old)
    before = (datetime.now(UTC) - timedelta(days=40)).timestamp()
    os.utime(old, (before, before))
    said = bench.run("gc", "--json")
    [item] = [item for item in said.json["items"] if item["kind"] == "requests"]
    assert [str(young.parent), old.stat().st_size] == [item["path"], item["num_bytes"]]
    assert "1 files of" in item["why"]
    held = RunLock(young.parents[1] / "lock", "someone")
    assert "requests" not in kinds(bench.run("gc", "--yes", "--json"))
    held.release()
    assert "requests" in kinds(bench.run("gc", "--yes", "--json"))
    assert [young] == list(young.parent.iterdir())
    assert 0 == bench.run("verify", result.json["job_id"]).code
