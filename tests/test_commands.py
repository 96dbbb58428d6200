"""The commands beside submit: help, init, doctor, plan, status, results, verify, resume."""

import json

import pyarrow.parquet as pq
import pytest

from batchrun.cli.main import COMMANDS, code_of
from tests.commands import Bench, texts


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command shows how it is called."""
    assert 0 == code_of([command, "--help"])
    out = capsys.readouterr().out
    assert "Example" in out
    assert f"  batchrun {command}" in out


def test_help_lists_commands_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """The first page that a person sees."""
    assert 0 == code_of(["--help"])
    out = capsys.readouterr().out
    for name, purpose in COMMANDS.items():
        assert name in out
        assert purpose[:30] in out
    assert "75 interrupted" in " ".join(out.split())


def test_init_makes_a_workspace_and_keeps_what_is_there(bench: Bench) -> None:
    """Starter specs appear; a spec that a person wrote stays."""
    target = bench.home / "nightly"
    assert 0 == bench.run("init", target).code
    assert {"summarize.toml", "report.toml", "demo.toml"} == {
        path.name for path in (target / "jobs").iterdir()
    }
    (target / "jobs" / "summarize.toml").write_text("mine")
    again = bench.run("init", target)
    assert "kept" in again.err
    assert "mine" == (target / "jobs" / "summarize.toml").read_text()
    assert all((target / name).is_dir() for name in ("buckets", "checkpoints"))


def test_doctor_says_what_would_run(bench: Bench) -> None:
    """Versions, engine, model and disk; 0 where a job could run."""
    result = bench.run("doctor")
    assert 0 == result.code
    for words in ("lead on cpu", "context 512 tokens", "GiB free", "fastokens", "running"):
        assert words in result.out
    assert "nothing" == bench.run("doctor", "--json").json["running"]["value"]


def test_doctor_names_what_is_wrong(bench: Bench) -> None:
    """A model that is not there is said with what to do, and is the exit code."""
    result = bench.run("doctor", "--job", "missing.toml")
    assert 78 == result.code
    assert "there is no job spec" in result.out
    assert "→" in result.out


def test_plan_says_what_submit_would_do(bench: Bench) -> None:
    """Rows to run, reused, duplicate, skipped, too long; buckets; padding. And submit uses the plan."""
    corpus = [*texts(40), texts(1)[0], None, "long " * 1000]
    path = bench.corpus(corpus)
    plan = bench.run("plan", path, "--json")
    counts = plan.json["counts"]
    assert [43, 40, 0, 1, 1, 1] == [
        counts[name] for name in ("total", "to_run", "reused", "duplicate", "skipped", "unusable")
    ]
    assert 1 == plan.json["too_long"]
    assert 40 == sum(plan.json["outline"]["documents_by_bucket"].values())
    assert counts["to_run_tokens"] == sum(plan.json["outline"]["tokens_by_bucket"].values())
    assert (
        plan.json["outline"]["padding_without_buckets"] >= plan.json["outline"]["padding_with_buckets"] >= 0
    )
    assert plan.json["estimated_seconds"] is None
    submitted = bench.submit(path)
    assert "the corpus is unchanged since it was planned" in submitted.err
    assert counts["to_run_tokens"] == submitted.json["tokens"]["input"]
    after = bench.run("plan", bench.corpus([*corpus, "one more"]))
    for words in (
        "1  to run",
        "40  reused",
        "1  duplicate",
        "1  too long: over",
        "0–1K",
        "padding",
        "time: about",
    ):
        assert words in after.out


def test_an_unchanged_corpus_is_not_planned_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same paths, sizes and times: the plan stands. A touched file: planned again."""
    path = bench.corpus(texts(5))
    bench.submit(path)
    with monkeypatch.context() as patch:
        patch.setattr("batchrun.submission.make_plan", lambda *_: pytest.fail("planned again"))
        assert 0 == bench.submit(path).code
    bench.corpus([*texts(5), "six"])
    assert 1 == bench.submit(path).json["rows"]["computed"]


def test_a_spool_that_is_gone_is_made_again(bench: Bench) -> None:
    """`buckets/` may be deleted at will; what is left to run is spooled anew."""
    import shutil

    path = bench.corpus(texts(6))
    bench.run("plan", path)
    shutil.rmtree(bench.home / "buckets")
    result = bench.submit(path)
    assert [0, 6] == [result.code, result.json["rows"]["computed"]]
    assert "are not in the spool" in result.err


def test_resume_without_a_spool_says_what_to_do(bench: Bench) -> None:
    """Without the corpus there is nothing to make it from."""
    import shutil

    path = bench.corpus(texts(6))
    job = bench.submit(path).json["job_id"]
    for segment in bench.segments():
        segment.unlink()
    shutil.rmtree(bench.home / "buckets")
    result = bench.run("resume", job)
    assert 75 == result.code
    assert "Submit the corpus again" in result.err


def test_resume_of_an_unknown_job_lists_the_known(bench: Bench) -> None:
    """A beginning of an id is enough; a wrong one is answered with the right ones."""
    job = bench.submit(bench.corpus(texts(2))).json["job_id"]
    assert 0 == bench.run("resume", job[:-3]).code
    result = bench.run("resume", "nightly")
    assert 78 == result.code
    assert job in result.err


def test_status_shows_every_job_and_one_in_full(bench: Bench) -> None:
    """A table of all; the facts of one; JSON for scripts."""
    assert "no runs in" in bench.run("status").out
    path = bench.corpus(texts(7))
    job = bench.submit(path).json["job_id"]
    table = bench.run("status").out
    for words in ("JOB", job, "complete", "7 ok, 0 failed", str(path)):
        assert words in table
    full = bench.run("status", job).out
    for words in ("7: 7 ok, 0 failed", "lead", "tokens/s", "corpus.summaries.parquet"):
        assert words in full
    record = json.loads(bench.run("status", "--json").out)[0]
    metrics = {"waiting_prefill_tokens", "running_decode_sequences", "kv_cache_usage", "oldest_wait_seconds"}
    assert metrics | {"seconds_to_completion", "num_preemptions"} <= set(record["metrics"])


def test_verify_reads_everything(bench: Bench) -> None:
    """0 where all is as promised; 75 and the file's name where a bit is wrong."""
    path = bench.corpus([*texts(30), None, "long " * 1000])
    job = bench.submit(path, "--max-error-rate", "1").json["job_id"]
    good = bench.run("verify", job, "--json")
    assert [0, []] == [good.code, good.json["damaged"]]
    for file in (bench.segments()[0], *bench.home.glob("checkpoints/*/*/*/*/plan.parquet")):
        content = file.read_bytes()
        file.write_bytes(content[:100] + bytes([content[100] ^ 4]) + content[101:])
        bad = bench.run("verify", job)
        file.write_bytes(content)
        assert 75 == bad.code, file
        assert f"DAMAGED  {file}" in bad.err


def test_verify_counts_the_output(bench: Bench) -> None:
    """An output that lost rows is found."""
    path = bench.corpus(texts(30))
    job = bench.submit(path).json["job_id"]
    output = bench.home / "corpus.summaries.parquet"
    table = pq.read_table(output)
    pq.write_table(table.slice(0, 29), output)
    result = bench.run("verify", job)
    assert 75 == result.code
    assert "it has 29 rows, planned were 30" in result.err
    assert f"row 29 of {path} is missing" in result.err


def test_results_needs_a_wish(bench: Bench) -> None:
    """-o or --only; and it refuses what submit refuses."""
    path = bench.corpus(texts(3))
    job = bench.submit(path).json["job_id"]
    assert 2 == bench.run("results", job).code
    assert 73 == bench.run("results", job, "-o", path).code
    done = bench.run("results", job, "-o", bench.home / "copy.parquet", "--json")
    assert [0, 3] == [done.code, done.json["rows"]["ok"]]
    assert bench.output() == bench.output("copy.parquet")
