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


@pytest.mark.parametrize(
    "asked",
    ["exit-75", "75", "#exit-75", "EXIT-75", "kv_cache_usage", "batchrun_kv_cache_usage", "KV_cache_usage"],
)
def test_a_block_is_printed(bench: Bench, monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    """In any case of its letters, every word of it, as wide as the terminal."""
    anchor = "exit-75" if "75" in asked else "kv_cache_usage"
    for columns in (40, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        shown = bench.run("runbook", asked)
        assert 0 == shown.code
        assert [anchor, *BLOCKS[anchor].split()] == shown.out.split()
        assert min(columns, 110) >= max(map(len, shown.out.splitlines()))
        starts = [line[:2] for line in shown.out.splitlines() if line.startswith("- ")]
        assert len(ITEMS) == len(starts)


def test_a_command_is_not_broken_where_it_fits_a_line(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert "`batchrun capacity JOB --time-budget 8h`" in bench.run("runbook", "exit-4").out


@pytest.mark.parametrize("columns", [40, 100])
def test_the_list(bench: Bench, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """It begins with the file that the blocks are anchors of; each has a few words of what it means."""
    monkeypatch.setenv("COLUMNS", str(columns))
    first, *listed = bench.run("runbook").out.splitlines()
    assert (str(path()), True) == (first, Path(first).is_absolute())
    assert list(BLOCKS) == [line.split()[0] for line in listed if not line.startswith(" ")]
    assert columns >= max(map(len, listed))
    words = [word for line in listed for word in line.split()]
    meanings = {name: block.split("\n\n")[0].split() for name, block in BLOCKS.items()}
    assert [word for name, meaning in meanings.items() for word in (name, *meaning)] == words


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("exit-99", "List them: batchrun runbook"),
        ("oldest_wait", "Is it oldest_wait_seconds? List them"),
        ("KV_CACH_USAGE", "Is it kv_cache_usage? List them"),
        ("", "List them: batchrun runbook"),
    ],
)
def test_a_name_that_is_not_there(bench: Bench, asked: str, hint: str) -> None:
    """The nearest is proposed."""
    unknown = bench.run("runbook", asked)
    assert 2 == unknown.code
    assert f"no block {asked!r}" in unknown.err
    assert hint in unknown.err


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
