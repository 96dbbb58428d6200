"""`batchrun report`: right against runs that are known, and there whatever became of the run."""

import json
from typing import Any

import pyarrow.parquet as pq
import pytest

from batchrun.insight import page as pages
from tests.commands import Bench, texts
from tests.insight.pages import RATES, report, simulate
from tests.insight.reported import heading, run_record

HOSTILE = (
    '<script>document.title = "broken"</script></table></svg></style><img src=x onerror=alert(1)> & more'
)


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
