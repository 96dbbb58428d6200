"""Padding on the engine that pads, with the two-layer model."""

import math
import re
from collections.abc import Sequence

import pytest

from batchrun.insight.bottlenecks import diagnose
from batchrun.insight.facts import RunFacts, find_run
from batchrun.workspace import Workspace
from tests.commands import Bench, set_engine

pytestmark = pytest.mark.engine

SHORTEST, NUM_DOCUMENTS = 100, 60


def run_of(bench: Bench, edges: Sequence[int]) -> RunFacts:
    """Sixty documents of 100 to 200 words, evenly by factor, which one batch holds where one bucket does."""
    spec = bench.home / "jobs" / "summarize.toml"
    set_engine(spec, kind="transformers", dtype="float32", max_num_seqs=64, max_num_batched_tokens=64 * 512)
    spec.write_text(
        re.sub(r"\n\[buckets\]\n.*", "", spec.read_text()) + f"\n[buckets]\nedges = {list(edges)}\n"
    )
    lengths = [round(SHORTEST * math.exp2(n / NUM_DOCUMENTS)) for n in range(NUM_DOCUMENTS)]
    corpus = bench.corpus([f"{n}" + " word" * length for n, length in enumerate(lengths)])
    done = bench.submit(corpus, "--seed", str(len(edges)), "--max-error-rate", "1")
    assert 0 == done.code, done.err
    return find_run(Workspace(home=bench.home), done.json["run_id"])


def test_padding_is_named_alone_and_what_is_advised_heals_it(bench: Bench) -> None:
    """Of a batch whose longest prompt is twice its shortest a quarter is padding; in two buckets it is half of that."""
    facts = run_of(bench, [512])
    [finding] = diagnose(facts)
    assert "padding" == finding.name
    assert 0.2 < facts.record.metrics.padding_share < 0.3
    advised = re.fullmatch(
        r"set buckets.edges to \[(\d+), 512\]: a batch never mixes two buckets", finding.action
    )
    assert advised, finding.action
    healed = run_of(bench, [int(advised[1]), 512])
    assert "padding" not in [found.name for found in diagnose(healed)]
    assert healed.record.metrics.padding_share < 0.6 * facts.record.metrics.padding_share
