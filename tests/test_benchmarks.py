"""The benchmarks keep running: their arithmetic, and each at toy size."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import arms, compare, residency
from benchmarks.comparison import HEADER, Comparison, Equality, Measured, Output, equality, spread, table
from benchmarks.rivals import padding_share
from benchmarks.work import DUPLICATE_SHARE, FAMILY, make_work

ROOT = Path(__file__).parent.parent


def measured(seconds: float, *texts: str) -> Measured:
    outputs = tuple(Output(text=text, num_tokens=10) for text in texts)
    return Measured(whole_seconds=seconds + 5, running_seconds=seconds, outputs=outputs)


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    """Each round is compared within itself: a machine that was slow in one round was slow for both arms."""
    rounds = {
        "generate": [measured(10, "a"), measured(40, "a"), measured(20, "a")],
        "batchrun": [measured(5, "a"), measured(20, "a"), measured(20, "a")],
    }
    first, second, ceiling = Comparison(rounds=rounds, input_tokens=90, ceiling_seconds=4.0).rows()
    assert ("generate", "20.0 [10.0–40.0]", "25.0 [15.0–45.0]", "5", "1.00", "0.20", "1 of 1") == first
    assert ("batchrun", "20.0 [5.0–20.0]", "25.0 [10.0–25.0]", "5", "2.00", "0.20", "1 of 1") == second
    assert "the ceiling" == ceiling[0]


def test_an_arm_that_failed_has_no_row() -> None:
    rounds = {"generate": [], "chunks": [measured(2, "a")]}
    [row] = Comparison(rounds=rounds, input_tokens=10).rows()
    assert ("chunks", "2.0", "7.0", "10", "1.00", "", "1 of 1") == row


def test_outputs_are_compared_by_their_tokens_where_both_tell_them() -> None:
    """The same text may come of other tokens."""
    one = Output(text="ab", num_tokens=2, token_ids=(1, 2))
    other = Output(text="ab", num_tokens=1, token_ids=(3,))
    assert Equality(equal=0, cut=0, total=1) == equality([one], [other])
    assert Equality(equal=1, cut=0, total=1) == equality([one], [Output(text=" ab\n", num_tokens=2)])


def test_an_output_that_was_cut_is_no_other_output() -> None:
    """Where batchrun ends what repeats itself its output is the beginning of the whole one."""
    whole = Output(text="so so so so", num_tokens=4)
    cut = Output(text="so so", num_tokens=2, is_cut=True)
    assert "0 and 1 cut of 1" == str(equality([whole], [cut]))
    assert "0 of 1" == str(equality([whole], [Output(text="so so", num_tokens=2)]))


def test_the_table_is_markdown() -> None:
    assert ["| a | b |", "| --- | ---: |", "| 1 | 2 |"] == table(["a", "b"], [["1", "2"]]).splitlines()
    assert "2.0 [1.0–4.0]" == spread([4.0, 1.0, 2.0])


def test_padding_is_counted_batch_by_batch() -> None:
    """Two prompts of 1 and 3 tokens are padded to 3 each; the last batch holds what is left."""
    assert 0.25 == padding_share([1, 3, 2], 2)


def test_rounds_begin_with_another_arm_each() -> None:
    assert ["a", "b", "c", "b", "c", "a"] == list(compare.turns(["a", "b", "c"], 2))


def test_an_arm_that_fails_has_no_more_rounds() -> None:
    """The others go on; what it had measured before counts."""
    ran: list[str] = []

    def run_arm(arm: str) -> Measured:
        ran.append(arm)
        if ran == ["a", "b", "b"]:
            raise arms.ArmError("no memory")
        return measured(1, "x")

    rounds = compare.measured_rounds(["a", "b"], 3, run_arm, "documents")
    assert ["a", "b", "b", "a", "a"] == ran
    assert {"a": 3, "b": 1} == {arm: len(each) for arm, each in rounds.items()}


def test_the_sets_of_work_are_what_they_are_called(tmp_path: Path, tiny_llama: Path) -> None:
    """As many documents as were asked for, none too long; duplicates, and families that begin alike."""
    bench = arms.Bench(folder=tmp_path, model=tiny_llama, longest=300)
    job = bench.job()
    works = {
        name: make_work(name, job, number=40, longest=300)
        for name in ("documents", "duplicates", "beginnings")
    }
    texts = {name: [it.text for it in work.texts] for name, work in works.items()}
    assert [40, 40, 20] == [len(each) for each in texts.values()]
    assert [40, 40 - round(40 * DUPLICATE_SHARE), 20] == [len(set(each)) for each in texts.values()]
    assert 20 // FAMILY == len({text[:400] for text in texts["beginnings"]})
    for work in works.values():
        asked = bench.assignment(work, bench.write_corpus(work), job)
        assert max(map(len, asked.prompts)) + work.max_tokens <= asked.max_model_len


def run(*words: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, check=True, env=environment, cwd=ROOT
    )
    return done.stdout


def test_slices_are_measured_on_the_simulator() -> None:
    """Whole outputs, which all others are measured against, cost nothing again."""
    name, num_slices, *_, again = next(residency.simulated_rows())
    assert ["whole outputs", "0", "0.0%"] == [name, num_slices, again]


@pytest.mark.engine
def test_slices_are_measured_on_the_engine(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without slices every token is computed once: no turn finds another's in the prefix cache."""
    for name, value in (("DOCUMENTS", 2), ("LONGEST", 200), ("OUTPUT", 80)):
        monkeypatch.setattr(residency, name, value)
    whole, *sliced = residency.real_rows(tiny_llama, 1)
    assert ("whole outputs", "1.00", "0") == (whole[0], *whole[2:])
    assert ["slices of 64", "slices of 32"] == [row[0] for row in sliced]


@pytest.mark.engine
def test_arms_are_compared(tiny_llama: Path) -> None:
    """`padded` and batchrun on transformers, which start sooner than vLLM: the same summaries."""
    size = ["--documents", "2", "--longest", "200", "--rounds", "1", "--calibrate", "0"]
    chosen = ["--sets", "documents", "--arms", "padded,batchrun-transformers", "--model", str(tiny_llama)]
    out = run("benchmarks.compare", *chosen, *size)
    assert f"| {' | '.join(HEADER)} |" in out
    rows = [line for line in out.splitlines() if line.startswith(("| padded", "| batchrun-transformers"))]
    assert ["2 of 2", "2 of 2"] == [row.split("|")[-2].strip() for row in rows]


@pytest.mark.engine
def test_the_gpu_benchmark_runs_on_a_cpu() -> None:
    """Every stage, on transformers alone, with a model of two layers that it builds."""
    out = run("benchmarks.gpu", "--toy", "--engines", "transformers", "--seconds", "45")
    [block] = json.loads(out.splitlines()[-1])["blocks"]
    stages: dict[str, Any] = block["stages"]
    assert {"loading", "ceiling", "feeding", "padding", "residency"} == set(stages)
    assert 0 < stages["feeding"]["ceiling_share"]
    assert stages["padding"]["buckets"]["padding_share"] < stages["padding"]["fifo_8"]["padding_share"]
    assert 0 < stages["residency"]["slices"]["short_per_s"]
