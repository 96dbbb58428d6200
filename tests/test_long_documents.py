"""Documents longer than the context, from the corpus to the output."""

import os
import signal
import time

import pytest

from tests.commands import Bench
from tests.kills import keys_on_disk
from tests.ledger import calls

SPEC = """
model = "{model}"

[prompt]
instruction = "Summarize the document."

[output]
max_tokens = 30

[long_documents]
policy = "{policy}"

[engine]
kind = "lead"
max_model_len = 400

[engine.options]
{options}
"""


def write_spec(bench: Bench, policy: str = "map_reduce", options: str = "") -> None:
    text = SPEC.format(model=bench.model, policy=policy, options=options)
    (bench.home / "jobs" / "summarize.toml").write_text(text)


def long_text(name: str, paragraphs: int = 60) -> str:
    return f"# {name}\n\n" + "".join(
        f"Paragraph {n} of {name} has a number, {n * n}. It says no more.\n\n" for n in range(paragraphs)
    )


def computed(bench: Bench, *arguments: object) -> dict[str, int]:
    """Input tokens of the calls of a run, by key."""
    ledger = bench.home / f"ledger-{time.monotonic_ns()}"
    process = bench.start("submit", *arguments, "--quiet", ledger=ledger)
    _, err = process.communicate(timeout=120)
    assert 0 == process.returncode, err
    return calls(ledger)


def test_a_long_document_is_summarized_in_parts(bench: Bench) -> None:
    """One row, with the tokens of all its calls; its neighbours are as they were."""
    write_spec(bench)
    result = bench.submit(bench.corpus(["short", long_text("L"), "also short"]))
    assert [0, 3] == [result.code, result.json["rows"]["ok"]]
    short, long, also = bench.output()
    assert [1, 1] == [short["num_parts"], also["num_parts"]]
    assert long["num_parts"] > 4
    assert long["summary"].startswith(("Part 1:\n# L", "Parts 1–"))
    assert long["kept_tokens"] > 1000
    assert result.json["tokens"]["input"] == sum(row["input_tokens"] for row in (short, long, also))
    plan = bench.run("plan", bench.home / "corpus.parquet", "--json").json
    assert 0 == plan["counts"]["to_run"]


def test_the_plan_says_how_many_are_long(bench: Bench) -> None:
    """In a bucket of their own."""
    write_spec(bench)
    path = bench.corpus(["short", long_text("L"), long_text("M")])
    assert "  long                 2" in bench.run("plan", path).out
    outline = bench.run("plan", path, "--json").json["outline"]
    assert [2, 1] == [outline["documents_by_bucket"][name] for name in ("long", "0–1K")]


@pytest.mark.parametrize("policy", ["truncate", "map_reduce"])
def test_the_plan_counts_what_is_read_of_long_documents(bench: Bench, policy: str) -> None:
    """What is cut off is not read; parts have prompts of their own, and their summaries are merged."""
    write_spec(bench, policy)
    path = bench.corpus(["short", *(long_text(f"L{n}", 40 * (n + 1)) for n in range(3))])
    planned = bench.run("plan", path, "--json").json
    counts = planned["counts"]
    assert counts["to_run_tokens"] == sum(planned["outline"]["tokens_by_bucket"].values())
    result = bench.submit(path)
    assert [0, 4] == [result.code, result.json["rows"]["ok"]]
    assert result.json["tokens"]["input"] == pytest.approx(counts["to_run_tokens"], rel=0.1)


def test_a_document_changed_in_its_last_tenth_computes_what_follows(bench: Bench) -> None:
    """The parts before the change are found under their keys, whatever the document's own key is now."""
    write_spec(bench)
    text = long_text("L", 200)
    path = bench.corpus([text])
    before = computed(bench, path)
    changed = text[: len(text) * 19 // 20] + "An end of another kind."
    after = computed(bench, bench.corpus([changed], "changed.parquet"))
    parts = bench.output("changed.summaries.parquet")[0]["num_parts"]
    assert parts > 12
    assert len(after) < parts // 2
    assert not before.keys() & after.keys()


def test_killed_between_parts_it_goes_on_with_the_next(bench: Bench) -> None:
    """What was durable at the kill is not computed again, and the output is that of a straight run."""
    write_spec(bench, options="prefill_tokens_per_s = 2500")
    path = bench.corpus([long_text(f"L{n}", 100) for n in range(3)])
    ledger = bench.home / "killed"
    process = bench.start("submit", path, "--quiet", ledger=ledger)
    while not bench.segments():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    durable = keys_on_disk(bench)
    assert durable
    write_spec(bench)
    rest = computed(bench, path)
    assert not durable & rest.keys()
    resumed = bench.output()
    assert 0 == bench.run("submit", path, "--seed", "1", "-o", bench.home / "straight.parquet").code
    assert [row | {"seed": 0} for row in bench.output("straight.parquet")] == resumed


def test_documents_that_begin_alike_share_their_parts(bench: Bench) -> None:
    """A part that two documents have is computed once."""
    write_spec(bench)
    text = long_text("L", 100)
    once = computed(bench, bench.corpus([text]))
    both = computed(
        bench, bench.corpus([text.replace("L", "M"), text.replace("L", "M") + "And more."], "two.parquet")
    )
    assert len(both) < len(once) + 5


def test_truncated_documents_are_flagged(bench: Bench) -> None:
    """Only the document is cut: kept and total tokens are recorded."""
    write_spec(bench, "truncate")
    result = bench.submit(bench.corpus(["short", long_text("L")]))
    assert [0, 2] == [result.code, result.json["rows"]["ok"]]
    assert "flagged of those computed: 1 capped\n" in result.err
    short, long = bench.output()
    assert [[], ["capped", "truncated"]] == [short["flags"], long["flags"]]
    assert 1 == long["num_parts"]
    assert 250 < long["kept_tokens"] < 370 < long["input_tokens"]
    assert long["summary"].startswith("# L\n\nParagraph 0 of L")


@pytest.mark.parametrize("character", ["漢", "🎉", "é"])
def test_a_truncated_document_ends_with_a_whole_character(bench: Bench, character: str) -> None:
    """Whatever tokens its characters are made of."""
    write_spec(bench, "truncate")
    spec = bench.home / "jobs" / "summarize.toml"
    spec.write_text(spec.read_text().replace("max_tokens = 30", "max_tokens = 300"))
    for extra in range(4):
        bench.submit(bench.corpus(["a" * extra + character * 600], f"c{extra}.parquet"))
        [row] = bench.output(f"c{extra}.summaries.parquet")
        assert {*"a" * bool(extra), character} == set(row["summary"])


def test_a_policy_of_fail_says_the_limit(bench: Bench) -> None:
    """As a row that is not tried again."""
    write_spec(bench, "fail")
    result = bench.submit(bench.corpus([long_text("L")]))
    assert [3, 1] == [result.code, result.json["rows"]["failed"]]
    [row] = bench.output()
    assert "prompt_too_long" == row["error_type"]
    assert "do not fit max_model_len 400" in row["error"]


def test_a_context_too_small_for_any_part_says_so(bench: Bench) -> None:
    """Where prompt and output leave no room for a part, the document fails alone."""
    write_spec(bench)
    spec = bench.home / "jobs" / "summarize.toml"
    spec.write_text(spec.read_text().replace("max_model_len = 400", "max_model_len = 90"))
    result = bench.submit(bench.corpus(["short", long_text("L")]), "--max-error-rate", "1")
    assert [1, 1] == [result.json["rows"][name] for name in ("ok", "failed")]
    assert "prompt_too_long" == bench.output()[1]["error_type"]


def test_the_parts_of_a_corpus_stay_with_their_documents(bench: Bench) -> None:
    """Verify accepts them, and they count as no documents."""
    write_spec(bench)
    bench.submit(bench.corpus([long_text("L"), "short"]))
    job = bench.run("status", "--json").json[0]["job_id"]
    assert 0 == bench.run("verify", job).code
    changed = (bench.home / "jobs" / "summarize.toml").read_text().replace("the document", "it")
    (bench.home / "jobs" / "summarize.toml").write_text(changed)
    assert "2 finished summaries of" in bench.submit(bench.home / "corpus.parquet").err
