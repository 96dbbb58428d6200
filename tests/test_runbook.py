"""The runbook has a block for every exit code and every batch metric, and what it says to do can be done."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from prometheus_client.parser import text_string_to_metric_families

from batchrun.cli.main import COMMANDS, main
from batchrun.errors import ExitCode
from batchrun.insight.runbook import blocks, path
from batchrun.run_record import BatchMetrics
from batchrun.spec import FINGERPRINTED, NEUTRAL, NEUTRAL_OPTIONS, JobSpec
from tests.commands import Bench, texts

TEXT = path().read_text(encoding="utf-8")
BLOCKS = blocks(TEXT)
ITEMS = ["Threshold", "Action", "It worked", "Roll back"]


def exported(bench: Bench) -> set[str]:
    """The names in a metrics file of a run."""
    file = bench.home / "batchrun.prom"
    bench.submit(bench.corpus(texts(2)), "--metrics-file", file)
    families = text_string_to_metric_families(file.read_text(encoding="utf-8"))
    return {family.name.removeprefix("batchrun_") for family in families}


def quoted() -> list[str]:
    return re.findall(r"`([^`\n]+)`", TEXT)


def test_every_exit_code_and_metric_has_its_block(bench: Bench) -> None:
    """And there is none besides: what a metrics file or a run record tells of, and the codes."""
    codes = {f"exit-{code.value}" for code in ExitCode}
    assert codes | exported(bench) | set(BatchMetrics.__annotations__) == BLOCKS.keys()


@pytest.mark.parametrize("anchor", BLOCKS)
def test_a_block_is_whole(anchor: str) -> None:
    """What it is, a threshold, an action, how to see that it worked, when to roll back: each once, in this order."""
    first, *_ = BLOCKS[anchor].split("\n\n")
    assert first
    assert not first.startswith("- ")
    assert ITEMS == re.findall(r"^- \*\*(.+):\*\* \S", BLOCKS[anchor], flags=re.MULTILINE)


def options_of(name: str) -> set[str]:
    command = main.get_command(click.Context(main), name)
    assert command is not None, name
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


def test_its_commands_are_there() -> None:
    """Each names a command that exists, with options that it has."""
    named = [text.split() for text in quoted() if text.startswith("batchrun ")]
    assert len(named) > 30
    for _, command, *words in named:
        assert command in COMMANDS
        wrong = {word for word in words if word.startswith("-")} - options_of(command) - {"--help"}
        assert set() == wrong, (command, words)
    everywhere = set().union(*(options_of(name) for name in COMMANDS))
    alone = {
        word for text in quoted() if text.startswith("-") for word in text.split() if word.startswith("-")
    }
    assert alone <= everywhere


def keys() -> Iterator[str]:
    """Spec keys in the text: of a section, with a dot."""
    sections = set(JobSpec.__annotations__)
    return (text for text in quoted() if "." in text and text.split(".")[0] in sections)


def test_its_spec_keys_are_there() -> None:
    found = set(keys())
    assert {"engine.max_num_seqs", "residency.slice_tokens"} <= found
    options = {f"engine.options.{name}" for name in NEUTRAL_OPTIONS}
    assert set() == found - FINGERPRINTED - NEUTRAL - options


def test_its_names_are_those_of_blocks() -> None:
    """A metric that a block sends to has a block of its own."""
    names = {text for text in quoted() if re.fullmatch(r"[a-z]+(_[a-z]+)+", text)}
    assert names <= BLOCKS.keys()


@pytest.mark.parametrize("asked", ["exit-75", "75", "#exit-75", "kv_cache_usage", "batchrun_kv_cache_usage"])
def test_a_block_is_printed(bench: Bench, asked: str) -> None:
    anchor = "exit-75" if "75" in asked else "kv_cache_usage"
    shown = bench.run("runbook", asked)
    assert (0, f"{anchor}\n\n{BLOCKS[anchor]}\n") == (shown.code, shown.out)


def test_the_list_and_a_name_that_is_not_in_it(bench: Bench) -> None:
    """The list begins with the file that the blocks are anchors of."""
    listed = bench.run("runbook").out.splitlines()
    assert [str(path()), *BLOCKS] == listed
    assert Path(listed[0]).is_absolute()
    unknown = bench.run("runbook", "exit-99")
    assert 2 == unknown.code
    assert "no block 'exit-99'" in unknown.err


def test_ends_name_their_block(bench: Bench) -> None:
    """An error, a run that ended badly and a log of objects; a mistyped command names its own help."""
    missing = bench.run("submit", "missing.parquet")
    assert missing.err.endswith("  runbook: batchrun runbook exit-66\n")
    logged = bench.run("submit", "missing.parquet", "--log-format", "json")
    assert '"runbook": "batchrun runbook exit-66"' in logged.err
    assert "runbook" not in bench.run("submit", "--no-such-option").err
    failing = bench.run("submit", bench.corpus(["long " * 2000, "short"]))
    assert 3 == failing.code
    assert "batchrun: runbook: batchrun runbook exit-3\n" in failing.err
    assert "runbook" not in bench.run("submit", bench.corpus(texts(2), "good.parquet")).err
