"""What a comparison says of rows: failed, pending and retried ones, and runs that did not end."""

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrun.engines.lead import LeadEngine
from batchrun.errors import InterruptedRunError
from batchrun.insight.comparison import compare_runs
from batchrun.insight.facts import find_run
from batchrun.insight.sides import Side
from batchrun.insight.standing_rows import standing_rows
from batchrun.records import Completion, ErrorType, FinishReason
from batchrun.run_record import RowCounts
from batchrun.workspace import Workspace
from tests.commands import Bench, set_engine, texts
from tests.insight.comparisons import compared, figure, left_out, run, spec


def failing(patch: pytest.MonkeyPatch, fails: Callable[[str], bool]) -> None:
    """The lead engine fails the requests of some documents."""
    real = LeadEngine.step

    def step(self: LeadEngine) -> list[Completion]:
        return [
            Completion(
                request_id=done.request_id,
                token_ids=[],
                finish_reason=FinishReason.ERROR,
                input_tokens=done.input_tokens,
                error_type=ErrorType.ENGINE_ERROR,
                error="no",
            )
            if fails(done.request_id)
            else done
            for done in real(self)
        ]

    patch.setattr(LeadEngine, "step", step)


def test_failed_rows_are_in_the_denominator(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all rows but the skipped ones; their requests have no times, which is told; and a gate closes on them."""
    corpus = bench.corpus([*texts(40), " ", None])
    spec(bench, "good")
    spec(bench, "bad")
    assert 0 == run(bench, "good", corpus).code
    with monkeypatch.context() as patch:
        failing(patch, lambda request_id: int(request_id[:2], 16) < 64)
        bad = run(bench, "bad", corpus)
    number = bad.json["rows"]["failed"]
    assert [3, 2] == [bad.code, bad.json["rows"]["skipped"]]
    assert 2 < number < 30
    found = compared(bench, "good", "bad")
    failed = figure(found, "rows_failed")
    assert [0, number, 40, 40] == [failed[name] for name in ("num_a", "num_b", "of_a", "of_b")]
    assert pytest.approx(number / 40) == failed["b"]
    assert pytest.approx(2 / 2**number) == failed["chance"]  # of the same texts, all that differ got worse
    assert number == figure(found, "requests_failed")["num_b"]
    assert ("times of 0–1K", "B", number, 40) in left_out(found)
    assert ("times of 0–1K", "A", number, 40) in left_out(found)  # no partner
    assert ("rates and times", "B", 2, 42) in left_out(found)
    counts = found["summaries"]["counts"]
    assert [40 - number, number, 0] == [counts[name] for name in ("same", "became_failed", "changed")]
    assert number == compared(bench, "bad", "good")["summaries"]["counts"]["mended"]
    gate = bench.run("compare", "good", "bad", "--fail-if", "rows_failed > 0.5%", "--quiet")
    assert [3, ""] == [gate.code, gate.out]
    assert f"rows_failed > 0.5%: holds: A 0%, B {100 * number / 40:g}%" in gate.err
    open_gate = bench.run("compare", "bad", "good", "--fail-if", "rows_failed > 0.5%", "--quiet")
    assert (0, "", "") == (open_gate.code, open_gate.out, open_gate.err)


def test_rows_that_are_tried_again_are_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the documents of the run: the second run computes the failed ones alone, each in its second attempt."""
    corpus = bench.corpus(texts(20))
    spec(bench, "one")
    with monkeypatch.context() as patch:
        failing(patch, lambda request_id: int(request_id[:2], 16) < 100)
        first = run(bench, "one", corpus).json
    second = run(bench, "one", corpus).json
    number = first["rows"]["failed"]
    assert 0 < number < 20
    found = compared(bench, first["run_id"], second["run_id"])
    tried = figure(found, "rows_retried")
    assert [0, 20, number, number] == [tried[name] for name in ("num_a", "of_a", "num_b", "of_b")]
    assert ("rates and times", "B", 20 - number, 20) in left_out(found)  # reused
    reasons = [each["reason"] for each in found["exclusions"] if each["of"] == "summaries"]
    assert [second["run_id"] in reasons[0], "one job and seed" in reasons[1]] == [True, True]


def test_a_run_that_did_not_end_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has not done is pending; and no gate opens for a run that left nothing, whatever it asks for."""

    def die(*_: object) -> None:
        raise InterruptedRunError("the engine died", "Submit again.")

    corpus = bench.corpus(texts(10))
    spec(bench, "one")
    spec(bench, "two")
    assert 0 == run(bench, "one", corpus).code
    monkeypatch.setattr("batchrun.engines.start", die)
    assert 75 == run(bench, "two", corpus).code
    asked = ("rows_pending > 0", "ttft_p95 > +10%", "rows_failed > 0.5%", "preemptions > 100")
    gates = [word for text in asked for word in ("--fail-if", text)]
    found = compared(bench, "one", "two", *gates)
    assert figure(found, "rows_failed")["b"] is None
    assert [0, 10] == [figure(found, "rows_pending")[name] for name in ("num_a", "num_b")]
    assert ("rows", "B", 10, 10) in left_out(found)
    assert [3, *[True] * 4] == [found["exit_code"], *(each["holds"] for each in found["outcomes"])]
    said = bench.run("compare", "one", "two", *gates).out
    assert "preemptions > 100: holds: nothing was measured that could say otherwise" in said
    assert "B is not complete: 10 of 10 rows have no verdict yet" in said
    quiet = bench.run("compare", "one", "two", "--quiet", "--fail-if", "rows_pending > 0")
    assert 3 == quiet.code
    assert "B is not complete" in quiet.err
    monkeypatch.setattr(Side, "missing", property(lambda _: "3 of 10 rows have no verdict yet"))
    silent = bench.run("compare", "one", "one", "--quiet", "--fail-if", "rows_pending > 0")
    assert (0, "", "") == (silent.code, silent.out, silent.err)


def test_rows_of_a_run_that_published_nothing_are_counted_as_rows(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record counts texts beside rows: three copies of ten texts, of which it ended three, are 9 of 30 rows; by
    texts alone, where a newer run has changed the memo table, they are 3 of 10.
    """
    spec(bench, "one")
    assert 0 == run(bench, "one", bench.corpus(texts(10) * 3)).code
    found = compared(bench, "one", "one")
    assert {"total": 30, "ok": 30} == {
        name: number for name, number in found["summaries"]["rows"][0].items() if number
    }
    facts = find_run(Workspace(home=bench.home), "one")
    killed = replace(facts, record=replace(facts.record, rows=RowCounts(total=30, ok=3, duplicate=20)))
    planned = RowCounts(total=30, ok=9, pending=21)
    as_rows, as_texts = standing_rows(killed, planned), standing_rows(killed, None)
    assert [30, 9, 21] == [as_rows.total, as_rows.ok, as_rows.pending]
    assert [10, 3, 7] == [as_texts.total, as_texts.ok, as_texts.pending]
    newer = replace(killed, record=replace(killed.record, run_id="newer"))
    monkeypatch.setattr("batchrun.insight.standing_rows.runs_of_job", lambda _: [newer])
    assert as_texts == standing_rows(killed, planned)


def test_a_failing_text_that_stands_often_does_not_hide_others_that_got_worse(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values, direction and interval are those of distinct texts; a gate is of rows."""
    often = "Often. " * 20
    corpus = bench.corpus([*[often] * 60, *texts(40)])
    for name in ("seen", "good", "bad"):
        spec(bench, name)
    run(bench, "seen", corpus)
    key = bench.output("seen.parquet")[0]["input_hash"]
    with monkeypatch.context() as patch:
        failing(patch, lambda request_id: request_id.startswith(key))
        run(bench, "good", corpus)
    with monkeypatch.context() as patch:
        failing(patch, lambda request_id: not request_id.startswith(key) and int(request_id[:2], 16) < 128)
        run(bench, "bad", corpus)
    found = figure(compared(bench, "good", "bad"), "rows_failed")
    assert found["a"] == pytest.approx(1 / 41)
    assert found["b"] > 0.2
    assert found["change"]["low"] <= found["b"] - found["a"] <= found["change"]["high"]
    assert ["worse", 41] == [found["verdict"], found["num_texts"]]
    assert [60, 100] == [found["num_a"], found["of_a"]]


def test_a_truncated_file_of_requests_is_left_out_by_name(bench: Bench) -> None:
    """The rest is compared."""
    corpus = bench.corpus(texts(30))
    for name in ("one", "two"):
        spec(bench, name)
        assert 0 == run(bench, name, corpus).code
    [path] = bench.home.glob("checkpoints/two-*/seed-0/corpora/*/requests/*.parquet")
    path.write_bytes(path.read_bytes()[:-50])
    found = compared(bench, "one", "two")
    assert f"their file {path} is damaged" in [each["reason"] for each in found["exclusions"]]
    assert 0 == figure(found, "rows_failed")["b"]


def test_a_rate_is_of_the_time_that_its_timeline_tells_of(bench: Bench) -> None:
    """The record of a run that was killed is half a minute newer: nothing became slower for that."""
    spec(bench, "one")
    assert 0 == run(bench, "one", bench.corpus(texts(5))).code
    facts = find_run(Workspace(home=bench.home), "one")
    last = pq.read_table(facts.timeline_file).slice(0, 1)
    for name, value in (("prefill_tokens", 30_000), ("running_seconds", 30.0)):
        place = last.schema.get_field_index(name)
        last = last.set_column(
            place, last.schema.field(place), pa.array([value], last.schema.field(place).type)
        )
    pq.write_table(last, facts.timeline_file)
    newer = replace(facts.record, seconds=replace(facts.record.seconds, running=58.0))
    found = compare_runs(facts, replace(facts, record=newer)).figures
    assert [(1000.0, 1000.0)] == [
        (each.a, each.b) for each in found if each.metric == "prefill_tokens_per_second"
    ]


def test_documents_that_planning_failed_are_failed_ones(bench: Bench) -> None:
    """A context that became too short for some: they are no pending ones, and lost their summaries."""
    corpus = bench.corpus([*texts(20), *(f"{n}" + " word" * 300 for n in range(3))])
    spec(bench, "long")
    assert 0 == run(bench, "long", corpus).code
    set_engine(spec(bench, "short"), max_model_len=256)
    assert 3 == run(bench, "short", corpus).code
    counts = compared(bench, "long", "short")["summaries"]["counts"]
    assert [20, 3, 0] == [counts[name] for name in ("same", "became_failed", "pending")]
    counts = compared(bench, "short", "short")["summaries"]["counts"]
    assert [20, 3, 0] == [counts[name] for name in ("same", "failed_in_both", "pending")]
