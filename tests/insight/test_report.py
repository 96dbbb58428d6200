"""`batchrun report`: right against runs that are known, and there whatever became of the run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrun.errors import InterruptedRunError
from batchrun.insight import page as pages
from batchrun.store.lock import Holder
from tests.commands import Bench, texts
from tests.insight.pages import RATES, Page, report, simulate

HOSTILE = (
    '<script>document.title = "broken"</script></table></svg></style><img src=x onerror=alert(1)> & more'
)


def run_record(bench: Bench) -> Path:
    [path] = bench.home.glob("checkpoints/*/seed-0/corpora/*/runs/*.json")
    return path


def remove(bench: Bench, pattern: str) -> None:
    found = list(bench.home.glob(f"checkpoints/*/seed-0/corpora/*/{pattern}"))
    assert found
    for path in found:
        path.unlink()


def heading(page: Page) -> str:
    node = page.tree.css_first("h1")
    assert node is not None
    return node.text()


@pytest.fixture
def night(bench: Bench) -> Bench:
    """40 texts: one of them twice, one empty, one too long; run on a simulator that was calibrated."""
    corpus = texts(38)
    corpus += [corpus[3], "", "word " * 700]
    assert 0 == simulate(bench, bench.corpus(corpus), "--max-error-rate", "0.5").code
    return bench


def test_the_rows_of_a_shard_are_its_own(bench: Bench) -> None:
    """Those of the other are no pending ones; together they are the corpus."""
    corpus = bench.corpus([*texts(38), ""])
    shards = []
    for shard in ("1/2", "2/2"):
        done = simulate(bench, corpus, "--shard", shard)
        assert 0 == done.code, done.err
        shards.append(bench.run("report", done.json["run_id"], "--json").json)
    for found in shards:
        assert 0 == found["rows"]["pending"]
        assert found["record"]["rows"]["ok"] == found["rows"]["ok"] == found["documents"]["num_documents"]
    assert (38, 1) == tuple(sum(found["rows"][status] for found in shards) for status in ("ok", "skipped"))


def test_figures_are_those_of_the_run(night: Bench) -> None:
    """Rows, tokens, lengths and reasons against the output; time and cost against the record."""
    _, result = report(night, "summarize", "--price", "3.6")
    found, output = result.json, night.output()
    record = json.loads(run_record(night).read_bytes())
    assert {"ok": 39, "failed": 1, "skipped": 1, "pending": 0} == found["rows"]
    ok = [row for row in output if row["status"] == "ok"]
    once = list({row["input_hash"]: row for row in ok}.values())
    [bucket] = found["documents"]["buckets"]
    assert (38, 38, "0–1K") == (bucket["num_documents"], bucket["num_ok"], bucket["label"])
    assert sum(row["input_tokens"] for row in once) == bucket["input"]["total"]
    assert sum(row["output_tokens"] for row in once) == bucket["output"]["total"]
    assert max(row["input_tokens"] for row in once) == bucket["input"]["highest"]
    lengths = sorted(row["output_tokens"] for row in once)
    assert lengths[18] == bucket["output"]["p50"]
    assert sum("capped" in row["flags"] for row in once) == bucket["num_capped"]
    assert sum(row["kept_tokens"] for row in once) / sum(lengths) == pytest.approx(bucket["compression"])
    assert 1.0 == pytest.approx(bucket["share"])
    reasons = {reason["error_type"]: reason for reason in found["documents"]["reasons"]}
    assert {None, "empty_text", "prompt_too_long"} == set(reasons)
    [example] = reasons["prompt_too_long"]["examples"]
    assert "40" == example["doc_id"]
    assert example["place"].endswith("corpus.parquet row 40")
    assert "tokens" in example["error"]
    seconds = record["seconds"]
    whole = seconds["planning"] + seconds["loading"] + seconds["running"] + seconds["publishing"]
    assert whole == pytest.approx(sum(found["phases"].values()))
    assert sum(found["phases"].values()) / 1000 == pytest.approx(found["bill"]["cost"])
    assert found["bill"]["cost"] / 38 == pytest.approx(found["bill"]["cost_per_document"])
    per_million = found["bill"]["cost"] * 1e6 / record["tokens"]["input"]
    assert per_million == pytest.approx(found["bill"]["cost_per_million_input"])
    assert found["phases"]["prefill_bound"] > 0 < found["phases"]["decode_bound"]
    assert seconds["running"] / record["estimated_seconds"] - 1 == pytest.approx(found["foretold"]["off_by"])
    assert record["metrics"]["ceiling_share"] == found["ceiling"]["share"]
    assert record["tokens"]["input"] == found["foretold"]["planned_input_tokens"]


def test_documents_are_linked_to_their_summaries(night: Bench) -> None:
    """The slowest and the most expensive, with cost beside quality; a summary's words are the document's."""
    page, result = report(night, "summarize", "--price", "3.6")
    found = result.json
    by_key = {row["input_hash"]: row for row in night.output() if row["status"] == "ok"}
    shown = {one["document"]["key"]: one for one in found["shown"]}
    [requests] = night.home.glob("checkpoints/*/seed-0/corpora/*/requests/*.parquet")
    times = {
        row["key"].hex(): row["ttft_ms"] + row["decode_ms"] for row in pq.read_table(requests).to_pylist()
    }
    slowest = [1000 * shown[key]["document"]["seconds"] for key in found["lists"]["slowest"]]
    assert sorted(times.values(), reverse=True)[:10] == pytest.approx(slowest)
    assert 10 == len(found["lists"]["slowest"]) == len(found["lists"]["expensive"])
    costs = [shown[key]["machine_seconds"] for key in found["lists"]["expensive"]]
    assert sorted(costs, reverse=True) == costs
    whole = sum(found["phases"].values())
    assert whole == pytest.approx(sum(one["machine_seconds"] for one in found["shown"]), 0.01)
    for key in found["lists"]["slowest"] + found["lists"]["expensive"]:
        one, row = shown[key], by_key[key]
        assert row["summary"] == one["document"]["summary"]
        assert row["kept_tokens"] / row["output_tokens"] == pytest.approx(one["compression"])
        assert one["coverage"] > 0.8
        assert page.tree.css_matches(f'a[href="#doc-{key}"]')
        assert page.tree.css_matches(f'article[id="doc-{key}"]')
        assert " ".join(row["summary"].split()) in page.text
    assert 2 == max(one["document"]["num_rows"] for one in found["shown"])
    assert "1 call or slice" in page.text
    assert "1 calls" not in page.text


def test_the_page_has_the_figures_of_the_json(night: Bench) -> None:
    """Each, as the page writes it."""
    page, result = report(night, "summarize", "--price", "3.6")
    found, cells, cards = result.json, page.cells(), page.cards()
    bill, foretold = found["bill"], found["foretold"]
    assert {
        "documents computed": "38",
        "rows with a summary": "39",
        "time": pages.time(sum(found["phases"].values())),
        "tokens read": pages.number(found["record"]["tokens"]["input"]),
        "tokens written": pages.number(found["record"]["tokens"]["output"]),
        "of the calibrated ceiling": pages.share(found["ceiling"]["share"]),
        "cost": pages.money(bill["cost"]),
        "against the prediction": pages.off_by(foretold["off_by"]),
    } == cards
    [bucket] = found["documents"]["buckets"]
    told = [pages.time(seconds) for seconds in found["phases"].values() if seconds >= 0.0005]
    told += [pages.money(value) for name, value in bill.items() if name.startswith("cost")]
    told += [pages.number(foretold["input_tokens"]), pages.number(bucket["compression"])]
    told += [f"{pages.share(found['quality'][0]['repetition'])} of 38"]
    told += [f"{pages.share(found['quality'][0]['coverage'])} of 38"]
    told += [" / ".join(str(bucket["input"][name]) for name in ("p50", "p95", "highest"))]
    told += [pages.money(one["cost"]) for one in found["shown"] if "slowest" in one["document"]["lists"]]
    assert set() == set(told) - cells
    assert "complete" in page.text


def test_nothing_of_a_document_breaks_out_of_the_page(bench: Bench) -> None:
    """Text, ids and errors are shown as they are written; the page has no script, and allows none."""
    corpus = bench.corpus(
        [f"{HOSTILE} {number}" for number in range(9)], id=[f"{HOSTILE}{n}" for n in range(9)]
    )
    simulate(bench, corpus)
    page, _ = report(bench, "summarize")
    assert [] == page.tree.css("script, img, iframe, link, object")
    assert HOSTILE in page.text
    assert 1 == len(page.tree.css("style"))
    assert "default-src 'none'" in page.html
    assert "http://" not in page.html.replace("http://www.w3.org/", "")
    assert "https://" not in page.html


def test_without_request_telemetry_the_page_says_so(night: Bench) -> None:
    """Time of single documents is not known; lengths and quality are, of the corpus as it stands."""
    remove(night, "requests/*.parquet")
    page, result = report(night, "summarize")
    found = result.json
    assert "There is no request telemetry of this run" in page.text
    assert "What held it up" in page.text
    assert [] == found["lists"]["slowest"] == found["lists"]["expensive"]
    assert not found["documents"]["of_run"]
    assert 38 == found["documents"]["buckets"][0]["num_ok"]
    assert 38 == found["quality"][0]["num_summaries"]


def test_without_a_timeline_the_page_says_so(night: Bench) -> None:
    """Nothing is drawn over time; time by phase is told as far as the record has it."""
    remove(night, "timelines/*.parquet")
    page, result = report(night, "summarize")
    assert "There is no timeline of this run" in page.text
    found = result.json["phases"]
    assert found["computing"] == pytest.approx(result.json["record"]["seconds"]["running"])
    assert 0 == found["prefill_bound"]


def test_without_a_profile_the_page_says_what_to_do(bench: Bench) -> None:
    bench.write_spec(RATES)
    bench.submit(bench.corpus(texts(20)))
    page, result = report(bench, "summarize")
    assert "For the next one: batchrun calibrate" in page.text
    assert "computing, not told apart" in page.text
    assert "what single documents cost is not known" in page.text
    assert "The share of the work is not known" in page.text
    assert result.json["ceiling"] is None is result.json["time_basis"]
    assert [] == result.json["lists"]["expensive"]
    assert {None} == {one["machine_seconds"] for one in result.json["shown"]}
    assert None is result.json["documents"]["buckets"][0]["share"]


@pytest.mark.parametrize("live", [False, True])
def test_a_run_that_was_killed_or_goes_on(
    night: Bench, monkeypatch: pytest.MonkeyPatch, *, live: bool
) -> None:
    """A record that says `running` is believed while its lock is held."""
    path = run_record(night)
    record = json.loads(path.read_bytes()) | {"state": "running", "exit_code": None}
    record["rows"] |= {"computed": 20}
    path.write_text(json.dumps(record))
    if live:
        holder = Holder(run_id=record["run_id"], pid=1, host="here", since="2026-11-30T22:00:00+00:00")
        monkeypatch.setattr("batchrun.selection.holder_of", lambda _: holder)
    page, result = report(night, "summarize")
    assert ("The run goes on" if live else "The run was killed") in page.text
    assert ("running" if live else "interrupted") == result.json["state"]
    assert result.json["foretold"]["off_by"] is None
    assert "The prediction was for all that was to run, which did not all run." in page.text


def test_what_held_it_up_stands_on_the_page(night: Bench) -> None:
    """The findings of `--diagnose`, or that there are none, with the times that they rest on and their counts."""
    page, result = report(night, "summarize")
    told = night.run("report", "summarize", "--diagnose", "--json").json
    assert told["findings"] == result.json["diagnosis"]["findings"]
    assert "What held it up" in page.text
    for finding in told["findings"]:
        assert finding["action"] in page.text
    assert told["by_length"] == result.json["diagnosis"]["by_length"]
    for group in told["by_length"]:
        assert f"{group['num_requests']:,}" in page.text


def test_a_run_that_computed_nothing(night: Bench) -> None:
    """The same submit again: what is said of documents is said of the corpus, and the runs stand side by side."""
    first = run_record(night).stem
    idle = night.submit(night.home / "corpus.parquet", "--max-error-rate", "0.5").json["run_id"]
    page, result = report(night, idle)
    assert "This run has computed no document" in page.text
    assert "The last runs of this corpus" in page.text
    assert [38, 0] == [run["computed"] for run in result.json["nights"]]
    page, result = report(night, "summarize")
    assert [first, 38] == [result.json["run_id"], result.json["record"]["rows"]["computed"]]
    assert f"A later run of this corpus is {idle}, which computed nothing." in page.text
    elsewhere = night.submit(night.corpus(texts(3), "less.parquet")).json["run_id"]
    page, _ = report(night, "summarize")
    newest = "The newest run of this job, of another corpus or seed, is"
    assert f"{newest} {elsewhere}, which computed nothing." in page.text


def test_a_run_that_died_before_its_first_document(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a page, and it says what there is."""

    def die(*_: object) -> None:
        raise InterruptedRunError("the engine died", "Submit again.")

    monkeypatch.setattr("batchrun.engines.start", die)
    assert 75 == bench.submit(bench.corpus(texts(3))).code
    page, result = report(bench, "summarize")
    assert {"ok": 0, "failed": 0, "skipped": 0, "pending": 3} == result.json["rows"]
    assert "interrupted, exit code 75: the engine died" in page.text
    remove(bench, "plan.json")
    page, _ = report(bench, "summarize")
    assert "The corpus is not planned to its end" in page.text


def test_a_corpus_that_changed_has_no_coverage(night: Bench) -> None:
    night.corpus(texts(5))
    page, result = report(night, "summarize")
    assert "Extractive coverage is not measured: the corpus has changed since it was planned." in page.text
    assert {None} == {one["coverage"] for one in result.json["shown"]}
    assert 0 < result.json["quality"][0]["num_summaries"]


def test_of_a_large_corpus_the_first_rows_are_read(night: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coverage is that of the documents found there, and it is said of how many."""
    monkeypatch.setattr("batchrun.insight.sources.FIRST_ROWS", 12)
    page, result = report(night, "summarize")
    assert [38, 12] == [result.json["quality"][0][name] for name in ("num_summaries", "num_coverage")]
    assert "38 summaries, 12 of them with the document's text at hand" in page.text


def test_damage_is_said(night: Bench) -> None:
    """A damaged segment is passed over and left where it is; a damaged plan tells nothing of documents."""
    [segment] = night.segments()[:1]
    segment.write_bytes(segment.read_bytes()[:-9] + b"no Parquet")
    page, result = report(night, "summarize")
    assert f"segment {segment} is damaged" in page.text
    assert result.json["rows"]["pending"] > 0
    assert segment.exists()
    [plan] = night.home.glob("checkpoints/*/seed-0/corpora/*/carried.parquet")
    plan.write_bytes(b"no Parquet")
    page, result = report(night, "summarize")
    assert f"Nothing can be said of single documents: {plan} is damaged" in page.text
    assert 39 == result.json["rows"]["ok"]


@pytest.mark.parametrize("damaged", ["plan.parquet", "requests", "timelines", "run record"])
def test_a_file_that_was_cut_off_is_named(night: Bench, damaged: str) -> None:
    """The page is there, with what the other files tell."""
    _, before = report(night, "summarize")
    assert "damaged" not in "".join(before.json["notes"])
    if damaged == "run record":
        path = run_record(night).with_stem("20000101T000000-abcdef")
        path.write_bytes(run_record(night).read_bytes()[:-9])
    else:
        [path] = night.home.glob(
            f"checkpoints/*/seed-0/corpora/*/{damaged}{'' if '.' in damaged else '/*.parquet'}"
        )
        path.write_bytes(path.read_bytes()[:-40])
    page, result = report(night, "summarize")
    [note] = [note for note in result.json["notes"] if str(path) in note]
    assert "damaged" in note
    assert note in page.text
    assert "There is no" not in "".join(result.json["notes"])
    assert before.json["rows"]["ok"] == result.json["rows"]["ok"]


def test_what_the_plan_has_to_read_is_what_was_predicted(bench: Bench) -> None:
    """As `plan` tells it before: the calls of documents in parts and their merges among it, whatever ran by then."""
    path = bench.write_spec(RATES)
    path.write_text(path.read_text().replace('policy = "fail"', 'policy = "map_reduce"'))
    corpus = bench.corpus([*texts(5), "many words " * 500])
    planned = bench.run("plan", corpus, "--json").json["counts"]["to_run_tokens"]
    bench.submit(corpus)
    page, result = report(bench, "summarize")
    assert planned == result.json["foretold"]["planned_input_tokens"]
    assert pages.number(planned) in page.cells()
    assert 1.0 == pytest.approx(planned / result.json["foretold"]["input_tokens"], abs=0.15)


@pytest.mark.parametrize(
    "given",
    [
        ["--diagnose", "-o", "page.html"],
        ["--diagnose", "--price", "3"],
        ["--price", "nan"],
        ["--price", "inf"],
    ],
)
def test_what_is_not_a_report_is_wrong_usage(night: Bench, given: list[str]) -> None:
    """And an empty word is no run."""
    assert 2 == night.run("report", "summarize", *given).code
    assert 2 == night.run("report", "").code
    assert [] == list(night.home.glob("*.html"))


def test_long_documents_are_a_bucket(bench: Bench) -> None:
    """Their calls are theirs: in one line, with the time of all of them."""
    path = bench.write_spec(RATES)
    path.write_text(path.read_text().replace('policy = "fail"', 'policy = "map_reduce"'))
    bench.run("calibrate", "--seconds", "10")
    bench.submit(bench.corpus([*texts(5), "many words " * 500]))
    _, result = report(bench, "summarize")
    short, long = result.json["documents"]["buckets"]
    assert [("0–1K", 5), ("long", 1)] == [(each["label"], each["num_documents"]) for each in (short, long)]
    assert long["share"] > short["share"]
    [document] = [one["document"] for one in result.json["shown"] if one["document"]["bucket"] == "long"]
    assert document["num_requests"] > document["num_parts"] > 1
    assert document["key"] == result.json["lists"]["expensive"][0]


def test_the_page_goes_where_a_person_looks(night: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into the folder one is in, by the run's id, again and again; never over a file of another kind."""
    monkeypatch.chdir(night.home)
    run_id = run_record(night).stem
    result = night.run("report", "summarize")
    assert str(night.home / f"report-{run_id}.html") == result.out.strip()
    assert 0 == night.run("report", run_id).code
    told: Any = night.run("report", "summarize", "--json").json
    assert told["page"] is None
    refused = night.run("report", "summarize", "-o", "corpus.parquet")
    assert 73 == refused.code
    assert "is not a page of batchrun report; it is not overwritten" in refused.err
    assert 73 == night.run("report", "summarize", "-o", "nowhere/page.html").code
    assert 78 == night.run("report", "nobody").code


def test_too_many_failed_rows_are_not_a_success(night: Bench) -> None:
    """The page says the exit code and the share that failed, and what to do, with all that it names in the runbook."""
    page, _ = report(night, "summarize")
    assert "exit code" not in heading(page)
    corpus = night.corpus([*texts(10), *(f"{'word ' * 700}{n}" for n in range(3))], "failing.parquet")
    page, _ = report(night, night.submit(corpus).json["run_id"])
    assert "complete, exit code 3: 3 of 13 failed" in heading(page)
    assert page.tree.css_matches("h1 .failed.bad")
    assert page.tree.css_matches('a[href="#runbook-exit-3"]')
    assert "batchrun results JOB --only failed counts the reasons" in page.text
    links = {link.attributes["href"] for link in page.tree.css('a[href^="#runbook-"]')}
    blocks = {f"#{block.attributes['id']}" for block in page.tree.css('[id^="runbook-"]')}
    assert "#runbook-exit-3" in links <= blocks


def test_a_shard_names_the_others(bench: Bench) -> None:
    corpus = bench.corpus(texts(20))
    ids = [bench.submit(corpus, "--shard", f"{number}/3").json["run_id"] for number in (1, 2)]
    page, result = report(bench, ids[1])
    assert [("1/3", ids[0], "complete")] == [tuple(each.values()) for each in result.json["other_shards"]]
    said = f"shard 2/3 of this corpus: rows, times and cost are its own. The others: 1/3 is run {ids[0]} (complete); "
    assert f"{said}1 without a run in this workspace." in page.text


def change_timeline(bench: Bench, change: Callable[[pa.Table], pa.Table]) -> None:
    [path] = bench.home.glob("checkpoints/*/seed-0/corpora/*/timelines/*.parquet")
    pq.write_table(change(pq.read_table(path)), path)


def with_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type))


def change_record(bench: Bench, **changes: Any) -> None:
    """A dictionary changes what it names."""
    path = run_record(bench)
    record = json.loads(path.read_bytes())
    for name, value in changes.items():
        record[name] = record[name] | value if isinstance(value, dict) else value
    path.write_text(json.dumps(record))


@pytest.mark.filterwarnings("error")
def test_a_run_whose_engine_ended_no_document(night: Bench) -> None:
    """What was to run is said where it is off the chart; tokens are of calls that ended, rates of all."""
    change_timeline(night, lambda table: with_column(table, "documents", [0] * table.num_rows))
    change_record(
        night,
        state="interrupted",
        stop_reason="time_budget",
        exit_code=4,
        estimated_seconds=None,
        rows={"computed": 0},
        tokens={"input": 0, "output": 0},
    )
    page, _ = report(night, "summarize")
    assert "interrupted, exit code 4: time_budget" in heading(page)
    assert "38 to run: off the chart" in page.text
    assert 2 == page.text.count("of calls that ended; ") == page.text.count(" a second with those under way")


def test_the_charts_of_a_run_that_goes_on_end_where_its_timeline_does(night: Bench) -> None:
    """And say so; the documents end with the record, which is newer."""
    page, _ = report(night, "summarize")
    assert "is not in the timeline" not in page.text
    running = json.loads(run_record(night).read_bytes())["seconds"]["running"]
    change_record(night, state="running", exit_code=None, seconds={"running": running + 60})
    page, result = report(night, "summarize")
    end = pages.time(result.json["course"]["seconds"][-1])
    assert 2 == page.text.count(f"It ends at {end}: what came after is not in the timeline.")
    assert f"The line ends with the run's record; up to {end} it is the timeline's." in page.text


def test_what_a_sample_missed_of_the_kv_cache_is_drawn(night: Bench) -> None:
    """The highest share of all steps, over the samples."""
    change_timeline(night, lambda table: with_column(table, "kv_cache_usage_max", [0.87] * table.num_rows))
    page, result = report(night, "summarize")
    assert pytest.approx(0.87) == result.json["kv_cache_usage_max"]
    assert "most of all steps: 87%" in page.text


@pytest.mark.parametrize(
    ("changes", "doubt"),
    [
        ({"metrics": {"ceiling_share": 1.6}}, "the run was 1.6 times as fast as the profile says"),
        ({"profile": {"decode": [[1, 5.0]]}}, "the profile covers 1 sequences at once, and"),
        ({"metrics": {"ceiling_share": 1.2}}, None),
    ],
)
def test_a_profile_that_is_no_measure_of_the_run_is_said(
    night: Bench, changes: dict[str, Any], doubt: str | None
) -> None:
    """On the page, and beside the figure; a chart that is cut off says how far it goes."""
    change_timeline(night, lambda table: with_column(table, "running", [8] * table.num_rows))
    change_record(night, profile={"decode": [[8, 900.0]]})
    change_record(night, **changes)
    page, result = report(night, "summarize")
    told = result.json["ceiling"]["doubt"]
    assert (doubt is None) == (told is None) == ("are no measure here" not in page.text)
    assert (doubt or "") in (told or "")
    assert ("cut off at 200%, up to" in page.text) == ("profile" in changes)


def test_pictures_are_drawn_once_for_light_and_dark(night: Bench) -> None:
    """Their colours are the page's variables, their words are text, their ids do not meet."""
    page, _ = report(night, "summarize")
    pictures = page.tree.css("svg")
    assert 7 <= len(pictures)
    drawn = "".join(picture.html or "" for picture in pictures)
    assert "#0" not in drawn.replace("#0)", "")
    assert "var(--c1)" in drawn
    assert "tokens/s" in page.text
    ids = [node.attributes["id"] for node in page.tree.css("[id]")]
    assert len(set(ids)) == len(ids)
