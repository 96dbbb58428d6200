"""`batchrun compare` on runs of the simulator."""

from pathlib import Path

import pytest

import batchrun
from batchrun.cli.compare_text import render
from batchrun.errors import UsageError
from batchrun.insight.changed_summaries import ChangedSummaries, ChangedSummary, SummaryCounts
from batchrun.insight.comparison import Comparison
from batchrun.insight.sides import Side
from tests.commands import Bench, texts
from tests.insight.comparisons import compared, figure, left_out, run, spec, verdicts

QUIET = {"within noise", "not judged"}


def test_half_the_decode_rate_is_seen_where_it_is(bench: Bench) -> None:
    """Times of output tokens are twice as long, by as much as the interval says; what was written is the same."""
    corpus = bench.corpus(texts(120))
    for name, rate in (("before", 1000), ("after", 500)):
        spec(bench, name, max_num_seqs=4, decode_tokens_per_s=rate)
        assert 0 == run(bench, name, corpus).code
    found = compared(bench, "before", "after")
    said = verdicts(found)
    assert ["worse", "not judged"] == [said["tpot_p50"], said["ttft_p50"]]  # all waited from the start
    assert {"within noise"} == {said[name] for name in ("output_tokens", "rows_failed", "requests_failed")}
    tpot = figure(found, "tpot_p50")
    assert [120, 120, True, "0–1K"] == [tpot[name] for name in ("num_a", "num_b", "is_paired", "group")]
    assert tpot["change"]["low"] <= tpot["b"] - tpot["a"] <= tpot["change"]["high"]
    assert 20 < tpot["percent"]["low"] < tpot["percent"]["high"] < 150
    assert ["engine.options.decode_tokens_per_s: 1000 → 500"] == found["settings"]
    assert "better" == verdicts(compared(bench, "after", "before"))["tpot_p50"]


def test_fewer_sequences_at_once_are_each_faster_and_all_slower(bench: Bench) -> None:
    """max_num_seqs is no part of the job's fingerprint: two names keep the runs apart."""
    corpus = bench.corpus(texts(120))
    for name, number in (("wide", 8), ("narrow", 2)):
        spec(bench, name, max_num_seqs=number)
        assert 0 == run(bench, name, corpus).code
    found = compared(bench, "wide", "narrow")
    said = verdicts(found)
    assert ["better", "within noise"] == [said["tpot_p50"], said["output_tokens"]]
    seconds = figure(found, "seconds_running")
    assert ["not judged", True] == [seconds["verdict"], seconds["b"] > 1.5 * seconds["a"]]
    assert "engine.max_num_seqs: 8 → 2" in found["settings"]
    assert not [line for line in found["settings"] if line.startswith("limits.max_num_seqs")]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_equal_settings_are_within_noise(bench: Bench, seed: int) -> None:
    """Other texts of the same kind and other output lengths: nothing is called better or worse."""
    spec(bench, "one", output_seed=10 * seed)
    spec(bench, "two", output_seed=10 * seed + 1)
    several = texts(400)
    assert 0 == run(bench, "one", bench.corpus(several[:200], "first.parquet")).code
    assert 0 == run(bench, "two", bench.corpus(several[200:], "last.parquet")).code
    found = compared(bench, "one", "two")
    assert set(verdicts(found).values()) <= QUIET
    assert not figure(found, "ttft_p50")["is_paired"]
    assert ("summaries", None, None, None) not in left_out(found)
    assert {"only_in_a": 200, "only_in_b": 200} == {
        name: number for name, number in found["summaries"]["counts"].items() if number
    }


def test_a_run_beside_itself_differs_by_nothing(bench: Bench) -> None:
    """And the answer is the same each time."""
    spec(bench, "one")
    assert 0 == run(bench, "one", bench.corpus(texts(30))).code
    found = compared(bench, "one", "one")
    assert set(verdicts(found).values()) <= QUIET
    assert {(0, 0)} == {
        (each["change"]["low"], each["change"]["high"])
        for each in found["figures"]
        if each["is_paired"] and each["change"]
    }
    assert found == compared(bench, "one", "one")


def test_prompt_tokens_of_the_prefix_cache_are_not_read(bench: Bench) -> None:
    """They stand in the record's rate, and are no speed."""
    spec(bench, "one", kv_tokens=100_000)
    long = "The same beginning of every document, word by word. " * 3
    record = run(bench, "one", bench.corpus([long + text for text in texts(30)])).json
    tokens, seconds = record["tokens"], record["seconds"]["running"]
    assert tokens["cached"] > 0
    speed = figure(compared(bench, "one", "one"), "prefill_tokens_per_second")["a"]
    assert pytest.approx((tokens["input"] - tokens["cached"]) / seconds, rel=0.01) == speed
    assert speed < 0.95 * tokens["input"] / seconds


def shorter(bench: Bench, name: str, instruction: str) -> None:
    path = spec(bench, name, output_tokens=1000, output_sigma=0)
    written = path.read_text().replace("max_tokens = 20", "max_tokens = 10")
    path.write_text(written.replace("[output]", f'[prompt]\ninstruction = "{instruction}"\n\n[output]'))


def test_changed_summaries_are_counted_and_shown(bench: Bench) -> None:
    """By text, wherever it stands, also where the prompt is another one; a few of them word by word, with their ids."""
    spec(bench, "long", output_tokens=1000, output_sigma=0)
    shorter(bench, "short", "Say it briefly.")
    before = texts(12)
    assert 0 == run(bench, "long", bench.corpus(before, "a.parquet")).code
    assert (
        0
        == run(bench, "short", bench.corpus(["A text of its own.", *before[2:], before[3]], "b.parquet")).code
    )
    found = compared(bench, "long", "short", "--show", "3")
    counts = found["summaries"]["counts"]
    assert {"changed": 10, "only_in_a": 2, "only_in_b": 1} == {
        name: number for name, number in counts.items() if number
    }
    assert "text" == found["summaries"]["matched_by"]
    assert ["2", "3", "4"] == [one["doc_id"] for one in found["summaries"]["shown"]]
    one = found["summaries"]["shown"][0]
    assert one["place"].endswith("a.parquet row 2")
    assert one["before"].startswith(one["after"].split(" ")[0])
    assert "[-" in one["words"]
    changed = figure(found, "rows_changed")
    assert [10, 10, 1.0] == [changed["num_b"], changed["of_b"], changed["b"]]
    assert pytest.approx(0.722, abs=1e-3) == changed["spread_b"]["low"]  # Wilson's
    assert any("prompt.instruction" in line for line in found["settings"])
    gate = bench.run("compare", "long", "short", "--fail-if", "rows_changed > 50%")
    assert 3 == gate.code
    assert "summaries of 10 texts in both: 10 changed, 2 only in A, 1 only in B" in gate.out
    assert "changed: 100% [72.2, 100" in gate.out
    assert "… 5 more (--show)" in gate.out


def test_a_summary_commands_no_terminal() -> None:
    """What a model repeats of a document is shown, not obeyed."""
    one = ChangedSummary(place="a row 0", doc_id="\x1b[2J", before="", after="", words="{+\x1b]0;title\x07+}")
    counts = SummaryCounts(changed=1)
    side = Side(name="run", state="complete", started_at="", engine=None, settings={})
    shown = ChangedSummaries(matched_by="text", counts=counts, shown=(one,))
    found = Comparison(kind="run", a=side, b=side, settings=(), figures=(), exclusions=(), summaries=shown)
    text = render(found)
    assert "{+�]0;title�+}" in text
    assert all(line.isprintable() for line in text.splitlines())


def test_jobs_with_other_columns_are_matched_by_row(bench: Bench) -> None:
    """Their keys have nothing in common."""
    corpus = bench.corpus(texts(6), title=[f"Title {number}" for number in range(6)])
    spec(bench, "plain", output_tokens=1000, output_sigma=0)
    shorter(bench, "titled", "Summarize {title}.")
    assert 0 == run(bench, "plain", corpus).code
    assert 0 == run(bench, "titled", corpus).code
    found = compared(bench, "plain", "titled")["summaries"]
    assert ["row", 6, 5] == [found["matched_by"], found["counts"]["changed"], len(found["shown"])]


def test_a_plan_that_is_gone_is_told(bench: Bench) -> None:
    """The figures stand without it."""
    corpus = bench.corpus(texts(10))
    for name in ("one", "two"):
        spec(bench, name)
        assert 0 == run(bench, name, corpus).code
    [record] = bench.home.glob("checkpoints/two-*/seed-0/corpora/*/plan.json")
    record.unlink()
    found = compared(bench, "one", "two")
    assert found["summaries"] is None
    assert ("summaries", "B", None, None) in left_out(found)
    assert "ttft_p50" in verdicts(found)


def test_the_screen_is_a_hundred_and_ten_columns_wide(bench: Bench) -> None:
    """With all that there is to tell, and both conditions with their values."""
    corpus = bench.corpus([*texts(30), ""])
    spec(bench, "one")
    spec(bench, "two", decode_tokens_per_s=100)
    assert 0 == run(bench, "one", corpus, "--release", "2026-12-01 of the spec").code
    assert 0 == run(bench, "two", corpus, "--release", "v2").code
    conditions = ["--fail-if", "ttft_p95 > +10%", "--fail-if", "rows_failed > 0.5%", "--price", "2.5"]
    result = bench.run("compare", "one", "two", *conditions)
    assert 3 == result.code
    lines = result.out.splitlines()
    assert [] == [line for line in lines if len(line) > 110]
    assert len(lines) < 45
    assert "release 2026-12-01 of the spec" in result.out
    for said in (
        "settings that differ",
        "whole run",
        "requests of 0–1K",
        "30 pairs",
        "left out",
        "cost_per_1000",
    ):
        assert said in result.out
    [holding] = [line for line in lines if "ttft_p95 > +10%: holds of 0–1K: A " in line]
    assert "(not judged)" in " ".join(lines[lines.index(holding) :])
    assert "rows_failed > 0.5%: does not hold: A 0%, B 0%" in result.out


def test_a_job_may_have_a_dot_in_its_name(bench: Bench) -> None:
    """It is no file."""
    corpus = bench.corpus(texts(5))
    spec(bench, "summarize.v2")
    assert 0 == run(bench, "summarize.v2", corpus).code
    assert 0 == bench.run("compare", "summarize.v2", "summarize.v2").code
    assert 0 == bench.run("capacity", "summarize.v2").code


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["one", "nobody"], 78, "there is no job 'nobody'"),
        (["one", "one", "--fail-if", "ttft > 1"], 2, "Did you mean"),
        (["one", "one", "--fail-if", "ttft_p95@9K > 1"], 2, "there is no group '9K'"),
        (["one", "corpus.parquet"], 2, "corpus.parquet is a file and one is none"),
        (["a.bench.parquet", "b.bench.parquet"], 66, "a.bench.parquet is not there"),
        (["corpus.parquet", "corpus.parquet"], 65, "no bench file"),
    ],
)
def test_what_can_not_be_compared_is_said(bench: Bench, arguments: list[str], code: int, said: str) -> None:
    """With its exit code, and in the JSON line, too."""
    corpus = bench.corpus(texts(10))
    spec(bench, "one")
    assert 0 == run(bench, "one", corpus).code
    words = [str(corpus) if word == "corpus.parquet" else word for word in arguments]
    result = bench.run("compare", *words, "--json")
    assert code == result.code
    assert said in result.err
    assert code == result.json["exit_code"]


def test_comparing_changes_nothing(bench: Bench) -> None:
    """No file of the workspace is another one after it, and none is new."""

    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in bench.home.rglob("*") if path.is_file()}

    corpus = bench.corpus(texts(10))
    for name in ("one", "two"):
        spec(bench, name)
        assert 0 == run(bench, name, corpus).code
    before = files()
    assert 0 == bench.run("compare", "one", "two").code
    assert before == files()


def test_a_release_is_a_name_alone(bench: Bench) -> None:
    """In the record, in status and for `resume`, and the job stays the same."""
    corpus = bench.corpus(texts(5))
    first = bench.submit(corpus)
    second = bench.submit(corpus, "--release", "v7 of the prompt")
    assert [first.json["job_id"], 0] == [second.json["job_id"], second.json["rows"]["computed"]]
    assert "release:   v7 of the prompt" in bench.run("status", first.json["job_id"]).out
    assert "v7 of the prompt" == bench.run("status", "--json").json[0]["release"]
    assert 0 == bench.run("resume", first.json["job_id"]).code
    assert "v7 of the prompt" == batchrun.status(home=bench.home)[0].release
    assert "v8" == batchrun.submit(corpus, home=bench.home, release="v8").release
    for name in ("", " ", "a\nb"):
        with pytest.raises(UsageError, match="release is"):
            batchrun.submit(corpus, home=bench.home, release=name)
