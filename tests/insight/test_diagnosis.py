"""Nights with one bottleneck that is known: the diagnosis names that one and no other, and its advice heals it."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from batchrun.insight.bottlenecks import diagnose, findings
from batchrun.insight.evidence import read_evidence
from batchrun.insight.facts import RunFacts
from tests.commands import Bench, texts
from tests.insight import scenes
from tests.insight.scenes import SCENES, WRITES, Scene


@pytest.fixture
def scene(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(bench, monkeypatch)


EVIDENCE: dict[Callable[..., RunFacts], str] = {
    scenes.prefill: r"reading takes 8\d% of 79 s .* prefill p50 grows from 2\d\d ms \(0–1K, n=36\) to \d\d\d ms "
    r"\(8K–32K, n=29\); the time of an output token \(TPOT\) p50 stays about the same, 22\d ms .* and 22\d ms \(8K–32K, n=29\)",
    scenes.decode: r"writing takes .*; 6\d sequences ran at once, and each token took about 1\.\d times as long as .*; over "
    r"lengths of input .* stays about the same, 42 ms \(0–1K, n=450\) and 48 ms \(1K–8K, n=30\)",
    scenes.interference: r"3[89]\d of 400 requests wrote while one of 29 prompts of 4,096 tokens or more was read: a step that "
    r"reads 16,034 of its tokens takes 846 ms, the usual one between two tokens \(ITL\) 40 ms; each",
    scenes.kv_cache: r"the KV cache was over 90% full for \d\d% of the time, and sequences were preempted: \d+ times, "
    r"\d\d of 300 requests; up to 2\d% of",
    scenes.feeding: r"documents waited while \d+ sequences ran where 64 could and the KV cache was \d% full.* \d\d% of [\d,]+ steps",
    scenes.kept_free: r"documents waited while \d sequences ran where 64 could and the KV cache was \d% full.* 0% of",
    scenes.padding: r"50% of the prompt tokens computed only filled batches",
    scenes.idle: r"the engine had nothing to compute for [\d.]+ s of [\d.]+; finished rows waited 0\.0 s for the disk",
    scenes.tail: r"the longest output took 1\d\.\d s of 31\.\d; the last to end wrote 1,503 tokens, where 62 is the median \(n=401",
    scenes.recomputation: r"95% of the prompt tokens read had been read before: 832 slices",
}
ACTIONS: dict[Callable[..., RunFacts], str] = {
    scenes.prefill: "read on more machines: submit with --shard 1/2",
    scenes.decode: "ask for shorter outputs in prompt.instruction: they have 148 tokens in the median",
    scenes.small_batch: "raise engine.max_num_seqs from 4 to 8",
    scenes.interference: "lower engine.max_num_batched_tokens from 16,384 to 1,024",
    scenes.kv_cache: "lower engine.max_num_seqs from 64 to 25",
    scenes.feeding: "put the workspace's buckets/ on a local disk",
    scenes.kept_free: "lower output.max_tokens from 4,000 to ",
    scenes.padding: "set buckets.edges to [",
    scenes.idle: "leave batchrun a CPU core beside the engine's",
    scenes.tail: "begin with long documents: submit with --prefer longest",
    scenes.recomputation: "raise residency.slice_tokens from 64 to 2,048",
}


ADVICE: dict[Callable[..., RunFacts], dict[str, Any]] = {
    scenes.interference: {"max_num_batched_tokens": 1024},
    scenes.kv_cache: {"max_num_seqs": 25},
    scenes.tail: {"prefer": "longest"},
    scenes.recomputation: {"slice_tokens": 2048},
}


@pytest.mark.parametrize("play", SCENES, ids=lambda play: play.__name__)
def test_the_one_bottleneck_is_named_and_no_other(play: Callable[..., RunFacts], scene: Scene) -> None:
    """With its share of the time, figures and numbers of requests, and one thing to do; in a healthy run there is
    none. Where the advice is for the spec or the command, the same documents under it have the bottleneck no more,
    and the night is no longer.
    """
    facts = play(scene)
    found = diagnose(facts)
    assert [name for name in [SCENES[play]] if name] == [finding.name.value for finding in found], found
    for finding in found:
        assert finding.share is not None
        assert 0.05 < finding.share <= 1
        assert re.search(EVIDENCE.get(play, ""), finding.evidence), finding.evidence
        assert finding.action.startswith(ACTIONS[play])
    if play in ADVICE:
        healed = play(scene, **ADVICE[play])
        assert SCENES[play] not in [finding.name.value for finding in diagnose(healed)]
        assert healed.record.seconds.running < 1.02 * facts.record.seconds.running


def test_a_night_at_its_ceiling_is_told_as_one(scene: Scene) -> None:
    """By a profile: the share of the ceiling, with nothing that stands out; the same profile names long inputs."""
    scenes.write_balanced(scene)
    calibrated = scene.bench.run("calibrate", "--seconds", "60", "--batched-tokens", "4096", "--json")
    assert 0 == calibrated.code, calibrated.err
    balanced = scene.submit(scenes.lengths(600, 700, 0.5))
    evidence = read_evidence(balanced)
    assert evidence.time is not None
    assert "profile" == evidence.time.basis
    assert [] == findings(evidence)
    said = scene.bench.run("report", balanced.record.run_id, "--diagnose").out
    assert re.search(r"nothing stands out: the run was at (9\d|10\d)% of the ceiling", said), said
    long = scene.submit(scenes.lengths(300, 4000, 0.3))
    [finding] = diagnose(long)
    assert "prefill" == finding.name
    assert "(by the profile)" in finding.evidence
    assert long.record.profile is not None
    alone = structs.replace(long.record.profile, decode=((1, WRITES),))  # of one sequence, where 64 ran
    doubted = read_evidence(replace(long, record=replace(long.record, profile=alone)))
    assert doubted.time is not None
    assert "timeline" == doubted.time.basis


def test_the_report_has_percentiles_and_findings(bench: Bench, scene: Scene) -> None:
    """By length and by concurrency, each with its number of requests; then what held the night up, and what to do.
    A percentile that too few requests have is a dash; as JSON it is one object.
    """
    facts = scenes.prefill(scene)
    said = bench.run("report", "summarize", "--diagnose")
    assert 0 == said.code, said.err
    lines = said.out.splitlines()
    assert f"run {facts.record.run_id}, complete: 400 requests on lead" in lines[0]
    assert ["INPUT TOKENS", "REQUESTS", "queue, ms"] == re.split(r"  +", lines[2].strip())[:3]
    assert ["0–1K", "36"] == lines[3].split()[:2]
    assert re.fullmatch(r"[\d,.]+/[\d,.]+/-", lines[3].split()[2])
    assert ["1K–8K", "335"] == lines[4].split()[:2]
    assert re.fullmatch(r"[\d,.]+/[\d,.]+/[\d,.]+", lines[4].split()[2])
    assert any(line.split()[:1] == ["33–64"] for line in lines)
    assert any(re.match(r"1\. prefill, 8\d% of the time", line) for line in lines)
    assert "   → read on more machines" in said.out
    plain = bench.run("report", facts.record.run_id, "--diagnose", "--json").json
    [finding] = plain["findings"]
    assert {"name", "share", "evidence", "action"} == set(finding)
    assert "prefill" == finding["name"]
    assert 36 == plain["by_length"][0]["num_requests"]
    assert 400 == sum(group["num_requests"] for group in plain["by_concurrency"])
    page = bench.run("report", facts.record.run_id, "--json").json
    phases = page["phases"]
    assert "timeline" == page["time_basis"]
    assert finding["share"] == pytest.approx(phases["prefill_bound"] / facts.record.seconds.running, abs=0.03)
    assert 0.03 > phases["computing"] / facts.record.seconds.running
    assert 10 == len(page["lists"]["expensive"])
    assert "to within 15 %" in page["notes"][0]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_what_is_told_fits_the_terminal(columns: int, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Diagnosis and comparison; every time of a group is there, whatever the width."""
    spec = bench.write_spec("prefill_tokens_per_s = 10000\ndecode_tokens_per_s = 2000")
    bench.submit(bench.corpus(texts(40)), "--job", spec.stem)
    monkeypatch.setenv("COLUMNS", str(columns))
    for command in (("report", "summarize", "--diagnose"), ("compare", "summarize", "summarize")):
        said = bench.run(*command)
        assert 0 == said.code, said.err
        assert columns >= max(len(line) for line in said.out.splitlines())
        words = re.split(r"[\s:,]+", said.out)
        assert all(word in words for word in ("ITL", "0–1K", "REQUESTS", "40") if command[0] == "report")


def test_of_a_short_run_is_said_what_can_not_be_told(bench: Bench) -> None:
    """Nothing is concluded from a few requests or samples."""
    bench.submit(bench.corpus(texts(5)))
    said = bench.run("report", "summarize", "--diagnose")
    assert 0 == said.code, said.err
    assert "the run was too short to tell what held it up" in said.out
    assert "not told: the timeline has too few samples" in said.out
    assert "not told: 0 requests have times: groups are compared from 20 on" in said.out


def test_damaged_telemetry_is_said(bench: Bench) -> None:
    """And the rest of the diagnosis is there."""
    bench.submit(bench.corpus(texts(5)))
    [path] = bench.home.glob("checkpoints/*/seed-0/corpora/*/requests/*.parquet")
    path.write_bytes(b"PAR1 no more")
    said = bench.run("report", "summarize", "--diagnose")
    assert 0 == said.code, said.err
    assert "not told: the files of request telemetry can not be read" in said.out
