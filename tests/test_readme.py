"""Every command of the README does what it says."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from batchrun.errors import ExitCode
from batchrun.insight.runbook import blocks, path
from tests.commands import Bench, texts

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
INSIGHT = (ROOT / "docs" / "insight.md").read_text(encoding="utf-8")


def commands(program: str) -> list[str]:
    """The commands of the README's indented blocks that call a program, then those of docs/insight.md, without their
    comments.
    """
    lines = re.findall(rf"^    ({program} .*)$", README + INSIGHT, flags=re.MULTILINE)
    return [line.split("#")[0].strip() for line in lines]


def test_the_batchrun_commands_work_in_their_order(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """From `init` to `verify`, each ends with 0 in a workspace whose model and engine are set."""
    monkeypatch.chdir(bench.home)
    bench.write_spec("prefill_tokens_per_s = 1_000_000\ndecode_tokens_per_s = 100_000")
    bench.corpus(texts(8))
    ran = 0
    for line in commands("batchrun"):
        words = shlex.split(line.removesuffix("&& cd nightly"))[1:]
        words = [
            str(bench.home / word) if word.endswith(".parquet") or word == "nightly" else word
            for word in words
        ]
        result = bench.run(*words)
        assert 0 == result.code, (line, result.err)
        ran += 1
    assert 38 == ran
    assert (bench.home / "so-far.parquet").exists()
    assert (bench.home / "nightly" / "jobs" / "summarize.toml").exists()


def test_the_make_targets_are_there() -> None:
    """`make demo` is run by `make proof`, and this is `make test`."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"(?:^    |`)make (\w+)", README, flags=re.MULTILINE)
    assert {"demo", "test", "proof"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_extras_are_there() -> None:
    """What is installed with `pip install 'batchrun[…]'` is an extra of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"batchrun\[(\w+)\]", README)
    assert {"vllm", "cpu", "transformers", "bench"} == set(named)
    assert {"vllm", "cpu", "transformers", "bench", "dev"} == set(project["optional-dependencies"])


@pytest.mark.parametrize(
    "column", ["source", "summary", "status", "flags", "input_hash", "engine", "num_parts"]
)
def test_the_columns_are_named(column: str, bench: Bench) -> None:
    """The table of the output is that of an output."""
    bench.submit(bench.corpus(texts(1)))
    assert column in bench.output()[0]
    assert f"`{column}`" in README


def test_the_exit_codes_are_all_named() -> None:
    """Every code that can be returned stands in the table, and none besides; the runbook has a block for each of them."""
    [table] = re.findall(r"^### Exit codes\n\n((?:\|.*\n)+)\n", README, flags=re.MULTILINE)
    head, rule, *rows = table.splitlines()
    assert ("| code | meaning | what to do |", "|---|---|---|") == (head, rule)
    named = {int(code) for row in rows for code in row.split("|")[1].split(",")}
    assert {int(code) for code in ExitCode} == named
    anchors = blocks(path().read_text(encoding="utf-8"))
    assert {f"exit-{code}" for code in named} == {name for name in anchors if name.startswith("exit-")}
