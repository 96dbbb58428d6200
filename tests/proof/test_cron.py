"""The example's crontab under real cron daemons, which fire once a minute; the machine's own crontabs stay as they are."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from tests.commands import Bench, texts
from tests.test_examples import example

pytestmark = [pytest.mark.proof, pytest.mark.timeout(600)]

ROWS = 300
RUN_SECONDS = 75.0
"""Longer than a minute, so that cron starts the line again while it runs."""


def busybox_crond(folder: Path) -> list[str]:
    """Its folder of crontabs is an argument; PATH it takes from its own environment."""
    busybox = shutil.which("busybox")
    applets = (
        subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True) if busybox else None
    )
    if busybox is None or applets is None or "crond" not in applets.stdout.split():
        pytest.skip("there is no busybox with crond: apt-get install busybox-static")
    crontab = folder / "root"
    kept = [line for line in crontab.read_text().splitlines() if not line.startswith("PATH=")]
    crontab.write_text("\n".join(kept) + "\n")
    return [busybox, "crond", "-f", "-c", str(folder), "-L", str(folder.parent / "crond.log")]


def cron(folder: Path) -> list[str]:
    """Its folders are fixed: it sees the test's own in their place, in a mount namespace of its own."""
    daemon, unshare = shutil.which("cron"), shutil.which("unshare")
    if (
        daemon is None
        or unshare is None
        or subprocess.run([unshare, "--mount", "true"], check=False).returncode
    ):
        pytest.skip("there is no cron, or no mount namespace can be made: apt-get install cron, as root")
    empty = folder.parent / "empty"
    empty.mkdir()
    mounts = [
        f"mount --bind {folder} /var/spool/cron/crontabs",
        f"mount --bind {empty} /etc/cron.d",
        "mount --bind /dev/null /etc/crontab",
        "mount -t tmpfs tmpfs /run",
        f"exec {daemon} -f",
    ]
    return [unshare, "--mount", "sh", "-c", " && ".join(mounts)]


@pytest.mark.skipif(os.geteuid() != 0, reason="a cron daemon runs as root")
@pytest.mark.parametrize(
    ("daemon", "expected"), [(busybox_crond, "0 0"), (cron, "1 0 0")], ids=["busybox", "cron"]
)
def test_cron_runs_the_example(daemon: Callable[[Path], list[str]], expected: str, bench: Bench) -> None:
    """Once a minute under /bin/sh, without a terminal: nothing is said, flock turns away (1) what comes while it runs,
    which busybox itself does not start, the output appears, and the start after that finds nothing to do.
    """
    corpus = bench.corpus(texts(ROWS))
    tokens = bench.run("plan", corpus, "--json").json["counts"]["to_run_tokens"]
    bench.write_spec(options=f"prefill_tokens_per_s = {tokens / RUN_SECONDS:.0f}")
    folder, said, codes, seen = (bench.home / name for name in ("crontabs", "said", "codes", "seen"))
    folder.mkdir()
    write_crontab(bench, folder / "root", said, codes, seen)
    words = daemon(folder)
    process = subprocess.Popen(words, env={"PATH": "/usr/bin:/bin"}, start_new_session=True)
    try:
        wait_for(lambda: codes.exists() and len(codes.read_text()) >= len(expected), process)
    finally:
        children = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        process.wait(15)
        psutil.wait_procs(children, timeout=30)
    assert expected.split() == codes.read_text().split()
    assert "" == said.read_text()
    surroundings = seen.read_text().splitlines()
    assert {"PATH=/usr/bin:/bin", "SHELL=/bin/sh", "not a tty"} <= set(surroundings)
    rows = pq.read_table(bench.home / "corpus.summaries.parquet")["status"].to_pylist()
    assert ["ok"] * ROWS == rows
    [last] = bench.run("status", "--json").json
    assert ("complete", 0, ROWS) == (last["state"], last["rows"]["computed"], last["rows"]["reused"])


def write_crontab(bench: Bench, path: Path, said: Path, codes: Path, seen: Path) -> None:
    """The example's variables and its first command, once a minute; what it says, its code, and what is around it
    into files.
    """
    lines = example("crontab", bench).replace("--deadline 06:00", "--time-budget 1h").splitlines()
    variables = [line for line in lines if re.match(r"[A-Z]+=", line)]
    command = next(line for line in lines if "flock" in line and not line.startswith("#"))
    command = re.sub(r"^\S+( +\S+){4} +", "", command)
    told = f"{command} >> {said} 2>&1; echo $? >> {codes}; (env; tty) > {seen}"
    path.write_text("\n".join(['MAILTO=""', *variables, f"* * * * * {told}", ""]))
    path.chmod(0o600)


def wait_for(holds: Callable[[], bool], process: "subprocess.Popen[bytes]", seconds: float = 400) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert process.poll() is None, "the daemon ended"
        assert time.monotonic() < deadline
        time.sleep(1)
