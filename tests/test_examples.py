"""The examples, each started as a scheduler would: only the paths are those of the test."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from batchrun.errors import ExitCode
from tests.commands import Bench, texts

EXAMPLES = Path(__file__).parent.parent / "examples"
BINARY = Path(sys.executable).parent / "batchrun"


def example(name: str, bench: Bench) -> str:
    """With the test's binary, workspace and corpus."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    for given, here in (
        ("/opt/batchrun/bin/batchrun", BINARY),
        ("/data/corpus.parquet", bench.home / "corpus.parquet"),
        ("/data/nightly", bench.home),
    ):
        text = text.replace(given, str(here))
    return text


def test_every_line_of_the_crontab_runs_under_cron(bench: Bench) -> None:
    """`/bin/sh`, a PATH of two folders, no HOME, the C locale, no terminal: nothing is said on success."""
    bench.corpus(["Grüße, 世界", *texts(5)])
    text = example("crontab", bench).replace("--deadline 06:00", "--time-budget 1h")
    environment = dict(re.findall(r"^(SHELL|PATH)=(.+)$", text, re.MULTILINE))
    commands = re.findall(r"^[\d*/-]+(?: +[\d,*/-]+){4} +(.+)$", text, re.MULTILINE)
    assert ("/bin/sh", 2) == (environment["SHELL"], len(commands))
    for command in commands:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            env={"PATH": environment["PATH"], "LANG": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            cwd="/",
        )
        assert (0, b"", b"") == (done.returncode, done.stdout, done.stderr)
    assert 6 == sum(row["status"] == "ok" for row in bench.output())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
@pytest.mark.parametrize("unit", ["batchrun.service", "batchrun.timer"])
def test_the_units_are_valid(unit: str, bench: Bench, tmp_path: Path) -> None:
    """As systemd itself reads them."""
    for name in ("batchrun.service", "batchrun.timer"):
        (tmp_path / name).write_text(example(name, bench))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / unit)], capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stderr
    assert "batchrun" not in done.stderr


def test_what_systemd_restarts_is_what_can_go_on(bench: Bench) -> None:
    """75 forces a restart, 4 is a success: the exit codes are ours."""
    text = example("batchrun.service", bench)
    assert f"RestartForceExitStatus={ExitCode.INTERRUPTED:d}\n" in text
    assert f"SuccessExitStatus={ExitCode.WINDOW_OVER:d}\n" in text


SLURM = {"SLURM_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "4"}


@pytest.mark.parametrize("name", ["batchrun.sbatch", "batchrun-array.sbatch"])
def test_slurm_s_signal_ends_with_a_requeue(name: str, bench: Bench, tmp_path: Path) -> None:
    """SIGUSR1 to the batch script: 75, all durable, and the job is put into the queue again."""
    bench.write_spec("prefill_tokens_per_s = 400")
    bench.corpus(texts(300))
    script, called = tmp_path / "job.sbatch", tmp_path / "requeued"
    script.write_text(example(name, bench))
    fake = tmp_path / "scontrol"
    fake.write_text(f'#!/bin/sh\necho "$@" > {called}\n')
    fake.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"} | SLURM
    process = subprocess.Popen(
        ["bash", str(script)], env=environment, stderr=subprocess.PIPE, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not bench.segments():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGUSR1)
    assert ExitCode.INTERRUPTED == process.wait(30)
    assert "requeue 7\n" == called.read_text()
    bench.write_spec()
    assert 0 == bench.submit(bench.home / "corpus.parquet").code


def test_the_tasks_of_a_slurm_array_are_joined(bench: Bench, tmp_path: Path) -> None:
    """As many shards as the array has tasks; then what the example's dependent job runs has every row."""
    bench.corpus(texts(12))
    text = example("batchrun-array.sbatch", bench)
    script = tmp_path / "array.sbatch"
    script.write_text(text)
    [(first, last)] = re.findall(r"^#SBATCH --array=(\d+)-(\d+)$", text, re.MULTILINE)
    numbers = range(int(first), int(last) + 1)
    for number in numbers:
        task = SLURM | {"SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_TASK_COUNT": str(len(numbers))}
        done = subprocess.run(
            ["bash", str(script)], env=os.environ | task, capture_output=True, text=True, check=False
        )
        assert (0, "") == (done.returncode, done.stdout)
    [join] = re.findall(r'^# +"(.+)"$', text, re.MULTILINE)
    join = join.replace("/data/corpus.summaries", f"{bench.home}/joined").replace("JOB_ID", "summarize")
    subprocess.run(["bash", "-c", join], capture_output=True, check=True)
    assert ["ok"] * 12 == [row["status"] for row in bench.output("joined.parquet")]


def test_kubernetes_is_told_which_codes_are_final() -> None:
    """None that can go on, and all that can not."""
    text = (EXAMPLES / "kubernetes-job.yaml").read_text(encoding="utf-8")
    [listed] = re.findall(r"values: \[([\d, ]+)\]", text)
    final = {int(code) for code in listed.split(",")}
    assert {
        ExitCode.USAGE,
        ExitCode.TOO_MANY_FAILED,
        ExitCode.WINDOW_OVER,
        ExitCode.CORPUS_UNUSABLE,
        ExitCode.CORPUS_NOT_FOUND,
        ExitCode.CONFIG,
    } == final
