"""`--shard i/n`: a corpus shared out among runs, and joined by `results`."""

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import batchrun
from batchrun import engines, submission
from batchrun.errors import ExitCode, UsageError
from batchrun.job import Job
from batchrun.records import ErrorType
from batchrun.store import checkpoints
from batchrun.workspace import Workspace
from tests.ages import days_ago, days_later
from tests.commands import Bench, Result, texts
from tests.kills import undisturbed
from tests.test_accounting import failing
from tests.test_api import Watcher

TEXTS = [*texts(24), None, "", *texts(6), "word " * 3000, "  "]
"""34 rows: six duplicates, three without a text, one too long."""


def submit_shards(bench: Bench, corpus: Path, *shards: str) -> list[Result]:
    return [bench.submit(corpus, "--shard", shard, "--max-error-rate", "1") for shard in shards]


def results(bench: Bench, *arguments: object) -> Result:
    return bench.run("results", "summarize", "-o", bench.home / "joined.parquet", "--json", *arguments)


def states(joined: Result) -> list[str]:
    return [shard["state"] for shard in joined.json["shards"]]


def test_shards_are_joined_into_the_output_of_the_whole(bench: Bench) -> None:
    """Each computes its own texts, once, and publishes nothing; the sums are those of the corpus."""
    corpus = bench.corpus(TEXTS)
    ends = submit_shards(bench, corpus, "1/3", "2/3", "3/3")
    assert [(0, None)] * 3 == [(end.code, end.json["output"]) for end in ends]
    assert all("complete: shard" in end.err and "batchrun results" in end.err for end in ends)
    assert not list(bench.home.glob("*.summaries.parquet"))
    joined = results(bench)
    assert (0, ["complete"] * 3) == (joined.code, states(joined))
    assert "batchrun: joined: 3 of 3 shards are complete\n" in joined.err
    rows = [end.json["rows"] for end in ends]
    whole = bench.submit(corpus, "--seed", "2", "--max-error-rate", "1").json["rows"]
    assert whole == {name: sum(each[name] for each in rows) for name in whole}
    assert 24 == whole["computed"]
    assert joined.json["rows"] == {name: whole[name] for name in joined.json["rows"]}
    output = pq.read_table(bench.home / "joined.parquet").drop_columns(["seed"])
    bench.run(
        "submit", corpus, "--max-error-rate", "1", "--seed", "1", "-o", bench.home / "undisturbed.parquet"
    )
    assert pq.read_table(bench.home / "undisturbed.parquet").drop_columns(["seed"]).equals(output)


def test_what_is_missing_or_unfinished_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its pending rows and what to do; the output has a row for each row all the same."""
    corpus = bench.corpus(texts(40))
    submit_shards(bench, corpus, "2/3")
    alone = results(bench)
    assert ["missing", "complete", "missing"] == states(alone)
    pending = [shard["rows"]["pending"] for shard in alone.json["shards"]]
    assert (
        f"never started: 1/3 ({pending[0]} rows pending), 3/3 ({pending[2]} rows pending); submit"
        in alone.err
    )
    assert (0, 40, sum(pending)) == (alone.code, alone.json["rows"]["total"], alone.json["rows"]["pending"])
    with monkeypatch.context() as no_time_to_run:
        no_time_to_run.setattr("batchrun.window.PUBLISHING_SECONDS", 60.0)
        stopped = bench.submit(corpus, "--shard", "3/3", "--time-budget", "59s")
    assert (ExitCode.WINDOW_OVER, None) == (stopped.code, stopped.json["output"])
    assert f"batchrun resume {stopped.json['job_id']} --shard 3/3" in stopped.err
    assert str(corpus) not in stopped.out
    partly = results(bench)
    assert ["missing", "complete", "unfinished"] == states(partly)
    assert f"unfinished: 3/3 ({pending[2]} rows pending); go on: the same submit, or" in partly.err
    corpus.unlink()
    resumed = bench.run("resume", "summarize", "--shard", "3/3", "--json")
    assert [0, pending[2], {"number": 3, "of": 3}] == [
        resumed.code,
        resumed.json["rows"]["ok"],
        resumed.json["shard"],
    ]
    assert pending[0] == results(bench).json["rows"]["pending"]


def test_a_shard_that_runs_is_told_as_running(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Joining disturbs no run; what it finished so far is in the output."""
    from batchrun import runner
    from batchrun.publication import count_shard

    found: list[Result] = []

    def look(*arguments: Any) -> Any:
        found.append(results(bench))
        return count_shard(*arguments)

    monkeypatch.setattr(runner, "count_shard", look)
    assert 0 == bench.run("submit", bench.corpus(texts(10)), "--shard", "1/2").code
    assert ["running", "missing"] == states(found[0])
    assert (
        f"running: 1/2 (0 rows pending); watch it: batchrun status {found[0].json['job_id']}" in found[0].err
    )


def test_a_corpus_that_changed_between_shards_is_told(bench: Bench) -> None:
    """The newest plan gives the rows; which shards were planned before it is said, and they are mended by a submit."""
    corpus = bench.corpus(texts(20))
    submit_shards(bench, corpus, "1/2", "2/2")
    bench.corpus([*texts(20), *(f"later {text}" for text in texts(20))])
    submit_shards(bench, corpus, "1/2")
    joined = results(bench)
    assert ["complete", "outdated"] == states(joined)
    pending = joined.json["shards"][1]["rows"]["pending"]
    assert 0 < pending < 20
    assert (40, pending) == (joined.json["rows"]["total"], joined.json["rows"]["pending"])
    assert f"buckets: 2/2 ({pending} rows pending); submit the corpus again with --shard 2/2" in joined.err
    bench.run("plan", corpus, "--shard", "2/2")
    assert ["complete", "outdated"] == states(results(bench))
    assert pending == submit_shards(bench, corpus, "2/2")[0].json["rows"]["computed"]
    assert ["complete", "complete"] == states(results(bench))


def test_another_split_of_the_corpus_is_named(bench: Bench) -> None:
    """What it finished is in the output, and is not computed again."""
    corpus = bench.corpus(texts(30))
    submit_shards(bench, corpus, "1/4", "2/3")
    joined = results(bench)
    assert ["missing", "complete", "missing"] == states(joined)
    assert [{"number": 1, "of": 4}] == joined.json["other_shards"]
    assert "shards of another split, too: 1/4" in joined.err
    assert 30 == sum(end.json["rows"]["ok"] for end in submit_shards(bench, corpus, "1/3", "2/3", "3/3"))
    assert 30 == sum(pq.read_table(path).num_rows for path in bench.segments())
    first = next(run for run in bench.run("status", "--json").json if run["shard"] == {"number": 1, "of": 4})
    assert 4 == len(states(results(bench, "--corpus", first["corpus_id"])))
    assert 3 == len(states(results(bench, "--corpus", first["whole_id"])))


def test_a_shard_has_no_output(bench: Bench) -> None:
    """`-o` is refused before anything is read, at submit and at resume; so is what is no shard."""
    corpus = bench.corpus(texts(4))
    for words, said in (
        (["submit", corpus, "--shard", "1/2", "-o", "x.parquet"], "shard 1/2 publishes nothing"),
        (["submit", bench.home / "missing.parquet", "--shard", "3/2"], "'3/2' is no shard"),
        (["plan", corpus, "--shard", "0/2"], "'0/2' is no shard"),
    ):
        refused = bench.run(*words)
        assert 2 == refused.code
        assert said in refused.err
    assert not bench.segments()
    submit_shards(bench, corpus, "1/2")
    refused = bench.run("resume", "summarize", "-o", bench.home / "x.parquet")
    assert 2 == refused.code
    assert "results JOB_ID -o OUT" in refused.err
    several = bench.submit(corpus, bench.corpus(texts(2), "other.parquet"), "--shard", "1/2")
    assert (0, None) == (several.code, several.json["output"])


def test_plan_and_status_know_shards(bench: Bench) -> None:
    """What a shard would do is told of its share; a plan is no start."""
    corpus = bench.corpus(texts(30))
    plans = [bench.run("plan", corpus, "--shard", f"{number}/2", "--json").json for number in (1, 2)]
    assert [30, 30] == [plan["corpus_rows"] for plan in plans]
    assert 30 == sum(plan["counts"]["to_run"] for plan in plans)
    shown = bench.run("plan", corpus, "--shard", "1/2").out.splitlines()[0]
    assert f"shard 1/2, {plans[0]['counts']['total']} of 30 rows" in shown
    assert [] == bench.run("status", "--json").json
    plain = bench.run("submit", corpus, "--shard", "2/2")
    assert (0, "") == (plain.code, plain.out)
    [end] = submit_shards(bench, corpus, "1/2")
    assert plans[0]["counts"]["to_run"] == end.json["rows"]["computed"]
    assert "the corpus is unchanged since it was planned" in end.err
    assert f"{corpus} shard 1/2" in bench.run("status").out
    assert "shard:     1/2 of corpus" in bench.run("status", "summarize").out


def test_failed_rows_count_in_their_own_shard(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that completes beyond its own error rate ends with 3; all failures are listed by `results`."""
    corpus = bench.corpus(texts(30))
    with monkeypatch.context() as patch:
        failing(patch, ErrorType.ENGINE_REJECTED)
        failed = bench.submit(corpus, "--shard", "1/2")
    assert (3, failed.json["rows"]["total"]) == (failed.code, failed.json["rows"]["failed"])
    assert 0 == bench.submit(corpus, "--shard", "2/2").code
    listed = bench.run("results", "summarize", "--only", "failed", "--json").json
    assert failed.json["rows"]["failed"] == listed["failed"]


def test_departed_texts_are_those_of_the_shard(bench: Bench) -> None:
    """A shard follows itself, whatever the others ran meanwhile; together they count each text once."""
    corpus = bench.corpus(texts(30))
    submit_shards(bench, corpus, "1/2", "2/2")
    bench.corpus(texts(20))
    ends = submit_shards(bench, corpus, "1/2", "2/2")
    departed = [end.json["rows"]["departed"] for end in ends]
    assert 10 == sum(departed)
    assert all(departed)


def test_shards_of_another_name_follow_yesterday_s(bench: Bench) -> None:
    """And not each other, whichever ends first; so does the whole corpus after them."""
    submit_shards(bench, bench.corpus(texts(30), "monday.parquet"), "1/2", "2/2")
    tuesday = bench.corpus(texts(20), "tuesday.parquet")
    ends = [*submit_shards(bench, tuesday, "2/2", "1/2"), bench.submit(tuesday)]
    departed = [end.json["rows"]["departed"] for end in ends]
    assert [10, 10] == [sum(departed[:2]), departed[2]]
    assert all(departed)


def test_verify_holds_a_shard_against_the_memo_table(bench: Bench) -> None:
    """It has no output; a verdict that is gone is named all the same, and the next submit makes it again."""
    corpus = bench.corpus(texts(20))
    ends = submit_shards(bench, corpus, "1/2", "2/2")
    job = ends[0].json["job_id"]
    good = bench.run("verify", job)
    assert (0, 2) == (good.code, good.err.count("ok       shard "))
    own = next(path for path in bench.segments() if path.name.startswith(ends[1].json["run_id"]))
    own.unlink()
    bad = bench.run("verify", job)
    number = ends[1].json["rows"]["total"]
    assert 75 == bad.code
    assert (
        f"{number} of {number} rows are in no segment, and run {ends[1].json['run_id']} completed" in bad.err
    )
    assert f"complete, but summaries are damaged or gone: 2/2 ({number} rows pending)" in results(bench).err
    assert number == submit_shards(bench, corpus, "2/2")[0].json["rows"]["computed"]
    assert 0 == bench.run("verify", job).code


def test_damage_found_at_the_end_of_a_shard_ends_resumable(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments are hashed again as for an output: 75, and the next submit computes them."""
    from batchrun import runner
    from batchrun.publication import count_shard

    def spoil(*arguments: Any) -> Any:
        [segment] = bench.segments()
        segment.write_bytes(b"spoilt")
        return count_shard(*arguments)

    corpus = bench.corpus(texts(10))
    with monkeypatch.context() as patch:
        patch.setattr(runner, "count_shard", spoil)
        result = bench.submit(corpus, "--shard", "1/2")
    assert (75, result.json["rows"]["total"]) == (result.code, result.json["rows"]["pending"])
    assert 0 == bench.submit(corpus, "--shard", "1/2").code


def test_gc_leaves_what_any_shard_needs(bench: Bench) -> None:
    """The plan of a shard that is in use keeps the summaries of all; a join needs one plan."""
    corpus = bench.corpus(texts(20))
    with days_ago(40):
        submit_shards(bench, corpus, "1/2")
    submit_shards(bench, corpus, "2/2")
    collected = bench.run("gc", "--yes")
    assert 0 == collected.code
    assert f"{corpus} shard 1/2, not used since" in collected.out
    assert 20 == sum(pq.read_table(path).num_rows for path in bench.segments())
    joined = results(bench)
    assert (["complete", "complete"], 20) == (states(joined), joined.json["rows"]["ok"])
    assert 0 == bench.run("verify", "summarize").code
    with days_later(31):
        assert 0 == bench.run("gc", "--yes").code
    assert (75, []) == (results(bench).code, bench.segments())


def test_from_python(bench: Bench) -> None:
    """As on the command line."""
    corpus, watcher = bench.corpus(texts(12)), Watcher()
    assert (
        batchrun.plan(corpus, home=bench.home, shard="1/2").shard
        == batchrun.submit(corpus, home=bench.home, shard="1/2").shard
    )
    rows = batchrun.results("summarize", bench.home / "now.parquet", home=bench.home, reporter=watcher)
    assert 12 == rows.total == rows.ok + rows.pending
    assert any("never started: 2/2" in note for note in watcher.notes)
    assert 0 == batchrun.resume("summarize", shard="1/2", home=bench.home).rows.computed
    with pytest.raises(UsageError, match="publishes nothing"):
        batchrun.submit(corpus, home=bench.home, shard="2/2", output="x.parquet")


def test_a_compaction_by_one_shard_leaves_what_the_others_need(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small segments of all shards become one; each goes on and is joined as before."""
    monkeypatch.setattr(checkpoints, "COMPACT_FROM", 2)
    corpus = bench.corpus(texts(30))
    submit_shards(bench, corpus, "1/3", "2/3")
    assert 1 == len(bench.segments())
    assert 0 == submit_shards(bench, corpus, "1/3")[0].json["rows"]["computed"]
    submit_shards(bench, corpus, "3/3")
    assert undisturbed(bench, corpus).num_rows == results(bench).json["rows"]["ok"]


def test_machines_that_begin_at_once_agree_on_the_engine(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `auto` is on the first one holds, also where another had looked before and found no job yet."""
    corpus = bench.corpus(texts(8))
    bench.submit(corpus)  # of the job before, whose summaries are counted while the other machine begins
    spec = bench.home / "jobs" / "summarize.toml"
    spec.write_text(spec.read_text().replace('kind = "lead"', 'kind = "auto"'))
    monkeypatch.setattr(engines, "resolve_kind", lambda _: "lead")
    submission_count = submission.count_ok

    def meanwhile(job: Job, job_id: str) -> int:
        with monkeypatch.context() as patch:
            patch.setattr(engines, "resolve_device_and_dtype", lambda *_: ("cuda", "bfloat16"))
            patch.setattr(submission, "count_ok", submission_count)
            assert 0 == bench.submit(corpus, "--shard", "1/2").code
        return 0

    monkeypatch.setattr(submission, "count_ok", meanwhile)
    refused = bench.submit(corpus, "--shard", "2/2")
    assert 78 == refused.code
    assert "was begun with lead in bfloat16 on cuda" in refused.err


def test_each_shard_has_its_folders(bench: Bench) -> None:
    """Its id stands for inputs, limit and shard, however the path is written."""
    corpus = bench.corpus(texts(8))
    submit_shards(bench, corpus, "1/2", "2/2")
    submit_shards(bench, Path(os.path.relpath(corpus)), "1/2")
    [job] = Workspace(home=bench.home).job_ids()
    folders = list(Workspace(home=bench.home).job(job, 0).corpora.iterdir())
    assert 2 == len(folders)
    assert 2 == len(
        {run["corpus_id"] for run in bench.run("status", "--json").json} & {one.name for one in folders}
    )


def test_another_corpus_plan_in_the_place_of_a_shard_s_is_found(bench: Bench) -> None:
    """`results` takes the plan of another shard, which has all rows, too; with none left it publishes nothing."""
    corpus, other = bench.corpus(TEXTS), bench.corpus(texts(34)[::-1], "other.parquet")
    submit_shards(bench, corpus, "1/2", "2/2")
    right = results(bench)
    submit_shards(bench, other, "1/2", "2/2")
    ids = [shard["corpus_id"] for shard in [*right.json["shards"], *results(bench).json["shards"]]]
    [*own, theirs, _] = [next(bench.home.glob(f"checkpoints/*/seed-0/corpora/{name}")) for name in ids]
    for number, damaged in enumerate(reversed(own)):
        shutil.copyfile(theirs / "plan.parquet", damaged / "plan.parquet")
        joined = results(bench, "--corpus", own[0].name)
        assert (75 if number else 0) == joined.code
        assert "plan.parquet is damaged or gone" in joined.err
    assert 75 == bench.run("results", "summarize", "--only", "failed", "--corpus", own[0].name).code
    assert any(
        "what it is needed for is not known" in left["why"] for left in bench.run("gc", "--json").json["left"]
    )


def test_failed_rows_come_with_the_shards_that_were_not_tried(bench: Bench) -> None:
    """An empty list is no news of a shard that never ran."""
    submit_shards(bench, bench.corpus(TEXTS), "1/3")
    listed = bench.run("results", "summarize", "--only", "failed")
    assert "batchrun: shards never started: 2/3, 3/3" in listed.err
