"""Finding a run, and its requests by length and concurrency."""

import pytest

from batchrun.errors import ConfigError
from batchrun.insight.facts import find_run, runs_of_job
from batchrun.insight.percentiles import LENGTHS, concurrency_label, percentiles
from batchrun.workspace import Workspace
from tests.commands import Bench, texts


def test_a_run_is_found_by_its_id_and_a_job_by_its_newest_run(bench: Bench) -> None:
    """By any beginning that is the only one."""
    corpus = bench.corpus(texts(6))
    ids = [bench.submit(corpus, "--limit", "3", "-o", bench.home / "a.parquet").json["run_id"]]
    ids.append(bench.submit(corpus, "--limit", "3", "-o", bench.home / "a.parquet").json["run_id"])
    workspace = Workspace(home=bench.home)
    assert ids[0] == find_run(workspace, ids[0]).record.run_id
    newest = find_run(workspace, "summarize")
    assert ids[1] == newest.record.run_id
    assert ids == [facts.record.run_id for facts in runs_of_job(newest)]
    with pytest.raises(ConfigError, match="ambiguous"):
        find_run(workspace, "20")
    with pytest.raises(ConfigError, match="no job 'nobody'"):
        find_run(workspace, "nobody")


def test_percentiles_are_by_length_and_by_concurrency(bench: Bench) -> None:
    """Each request counts once by length, once by concurrency and once by both."""
    bench.write_spec("prefill_tokens_per_s = 100000\ndecode_tokens_per_s = 2000")
    bench.submit(bench.corpus(texts(30)))
    facts = find_run(Workspace(home=bench.home), "summarize")
    groups = percentiles(facts.requests, facts.scratch)
    [by_length] = [group for group in groups if group.concurrency is None]
    assert (LENGTHS[0], 30) == (by_length.length, by_length.num_requests)
    assert 18 < by_length.output_tokens <= 20
    assert by_length.tpot_ms is not None
    assert 0 < by_length.tpot_ms.p50 <= by_length.tpot_ms.p95 <= by_length.tpot_ms.p99
    by_concurrency = [group for group in groups if group.length is None]
    assert 30 == sum(group.num_requests for group in by_concurrency)
    assert percentiles([], facts.scratch) == []


@pytest.mark.parametrize(("power", "label"), [(0, "1"), (1, "2"), (2, "3–4"), (3, "5–8")])
def test_concurrency_is_told_by_doubling(power: int, label: str) -> None:
    assert label == concurrency_label(power)
