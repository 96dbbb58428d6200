"""A run as a person sees it on a terminal, and as a log file has it without one; and `status` beside it."""

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
import time
from dataclasses import replace
from pathlib import Path

import pytest

from batchrun.cli.console import LINE_SECONDS, LineReporter, bar_text
from batchrun.run_record import BatchMetrics, PhaseSeconds, RowCounts, RunRecord, RunState
from tests.commands import Bench, texts


def on_terminal(
    columns: int, *words: object, stop_at: bytes | None = None, **environment: str
) -> tuple[int, str]:
    """Run batchrun on a pseudo-terminal of that width; returns its exit code and every character that came.

    SIGTERM is sent when `stop_at` is seen.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR"}}
    process = subprocess.Popen(
        [sys.executable, "-m", "batchrun", *map(str, words)],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
        env=kept | environment,
    )
    os.close(follower)
    received = bytearray()
    while True:
        try:
            block = os.read(leader, 65536)
        except OSError:  # what Linux says when the other side is closed
            break
        if not block:
            break
        received += block
        if stop_at is not None and stop_at in received:
            process.terminate()
            stop_at = None
    os.close(leader)
    return process.wait(60), received.decode()


def rendered(received: str, columns: int) -> list[str]:
    """The lines that stay on the screen. A terminal goes on in the next line when a character is written past its
    last column, not before.
    """
    lines, column = [""], 0
    for character in received:
        if character == "\r":
            column = 0
        elif character == "\n":
            lines.append("")
        else:
            if column == columns:
                lines.append("")
                column = 0
            line = lines[-1].ljust(column)
            lines[-1] = line[:column] + character + line[column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


def throttled(bench: Bench, number: int, seconds: float) -> Path:
    """A corpus that takes about so long."""
    corpus = bench.corpus(texts(number))
    tokens = bench.run("plan", corpus, "--json").json["counts"]["to_run_tokens"]
    bench.write_spec(options=f"prefill_tokens_per_s = {tokens / seconds:.0f}")
    shutil.rmtree(bench.home / "checkpoints")  # so that the run plans
    return corpus


@pytest.mark.parametrize("columns", [80, 40])
def test_a_terminal_has_a_bar_that_ends_cleanly(columns: int, bench: Bench) -> None:
    """Nothing but carriage returns moves the cursor; the bar rises, fits the width, and stays at 100 % with the last
    words below it; planning and loading leave nothing behind.
    """
    corpus = throttled(bench, 300, 4.0)
    code, received = on_terminal(columns, "submit", corpus, "--home", bench.home)
    assert 0 == code, received
    assert {"\r", "\n"} == {character for character in received if ord(character) < 32}
    frames = [frame for frame in re.split("[\r\n]", received) if "%|" in frame]
    assert len(frames) > 3
    assert all(len(frame) <= columns for frame in frames)
    shares = [int(frame.partition("%")[0]) for frame in frames]
    assert (sorted(shares), 100) == (shares, shares[-1])
    assert any(re.search(r"\d+ of 300, \d+ s left", frame) for frame in frames)
    assert (columns == 80) == any("tokens/s" in frame for frame in frames)
    lines = rendered(received, columns)
    [bar] = [number for number, line in enumerate(lines) if "%|" in line]
    assert re.match(r"100%\|█+\| 300 of 300", lines[bar])
    assert lines[bar + 1].startswith("batchrun: complete: 300 rows: 300 ok")
    assert "planning: 300 rows read" in received
    assert "planning" not in "".join(lines)
    assert ["corpus.summaries.parquet", ""] == ["".join(lines)[-24:], lines[-1]]


def test_a_stopped_bar_ends_cleanly(bench: Bench) -> None:
    """What there is of it stays, and the message begins on a line of its own."""
    corpus = throttled(bench, 300, 60.0)
    code, received = on_terminal(80, "submit", corpus, "--home", bench.home, stop_at=b" left")
    assert 75 == code, received
    lines = rendered(received, 80)
    [bar] = [number for number, line in enumerate(lines) if "%|" in line]
    assert " of 300, " in lines[bar]
    assert lines[bar + 1].startswith("batchrun: stopped (SIGTERM)")


def test_colours_obey_no_color(bench: Bench) -> None:
    """The doctor's marks, on a terminal; the text is the same."""
    code, coloured = on_terminal(80, "doctor", "--home", bench.home)
    assert 0 == code
    assert "\x1b[32m✓\x1b[0m batchrun" in coloured
    _, plain = on_terminal(80, "doctor", "--home", bench.home, NO_COLOR="1")
    assert "\x1b" not in plain
    assert 80 >= max(len(line) for line in plain.splitlines() if "/" not in line)


def test_status_beside_a_run(bench: Bench) -> None:
    """In another process: how far, how fast, how long still, and the window; for a person and for a script."""
    corpus = throttled(bench, 300, 60.0)
    process = bench.start("submit", corpus, "--time-budget", "40s")
    try:
        deadline = time.monotonic() + 60
        record: dict[str, object] = {"percent_done": 0}
        while not record["percent_done"]:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.2)
            [record] = json.loads(bench.run("status", "--json").out) or [record]
        text = bench.run("status", str(record["job_id"])).out
        table = bench.run("status").out
    finally:
        process.kill()
        process.communicate()
    assert ("running", 300) == (record["state"], record["to_run"])
    metrics = record["metrics"]
    assert isinstance(metrics, dict)
    assert metrics["prefill_tokens_per_second"] > 0
    assert metrics["seconds_to_completion"] > 0
    assert metrics["slack_seconds"] < 0
    assert str(record["window_ends_at"]) > str(record["started_at"])
    for words in (
        rf"running \(process {process.pid} on .+\), since .+ ago: \d+ of 300 documents done \(\d+%\), about ",
        r"window: +ends .+, \d+ .+ too early",
        r"rates: +[\d,]+ prefill and [\d,]+ decode tokens/s",
        r"left: +\d+ ",
    ):
        assert re.search(words, text), text
    assert re.search(r"running +\d+ of 300 \(\d+%\) +\d+ ", table), table


def test_without_a_terminal_a_line_at_most_every_half_minute(capsys: pytest.CaptureFixture[str]) -> None:
    """Plain text that a log can keep."""
    now = [0.0]
    reporter = LineReporter(clock=lambda: now[0])
    run = record_of(250, seconds_left=720.0)
    loading = replace(run, engine=None, seconds=PhaseSeconds(loading=45.0))
    for second in range(3 * int(LINE_SECONDS)):
        now[0] = second + 1
        reporter.running(run if second > LINE_SECONDS else loading)
    told = capsys.readouterr().err.splitlines()
    line = (
        "batchrun: 250 of 1,000 documents (25%), 0 failed, 0 prefill and 0 decode tokens/s, about 12 min left"
    )
    assert ["batchrun: loading the model for 45 s by now", line, line] == told


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (120, " 25%|{bar}| 250 of 1,000, 12 min left, 3 failed, 0 in, 0 out tokens/s"),
        (60, " 25%|{bar}| 250 of 1,000, 12 min left, 3 failed"),
        (40, " 25%|{bar}| 250 of 1,000, 12 min left"),
        (20, " 25%|{bar}| 250 of 1,000"),
    ],
)
def test_a_narrow_bar_keeps_what_matters_most(columns: int, expected: str) -> None:
    """How much is done, how long it takes, what failed, and then how fast."""
    assert expected == bar_text(record_of(250, seconds_left=720.0, failed=3), columns)


def record_of(computed: int, *, seconds_left: float, failed: int = 0) -> RunRecord:
    return RunRecord(
        job_id="j",
        run_id="r",
        seed=0,
        corpus_id="c",
        corpus=["c.parquet"],
        state=RunState.RUNNING,
        first_planned_at="2026-11-30T00:00:00+00:00",
        engine="lead",
        to_run=1000,
        rows=RowCounts(computed=computed, failed=failed),
        metrics=BatchMetrics(seconds_to_completion=seconds_left),
    )
