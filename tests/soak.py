"""`python -m tests.soak FOLDER MODEL SECONDS`: night after night on one workspace, killed at random, and watched."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

ROWS, NEW_ROWS = 20_000, 10_000
"""Of a night's corpus, and of them those that the night before did not have."""
KILLS_A_NIGHT = 2
SPEC = 'model = "{model}"\n[output]\nmax_tokens = 20\n[long_documents]\npolicy = "fail"\n[engine]\nkind = "lead"\n'


@dataclass(kw_only=True)
class Night:
    """What was seen of a night: bytes, files and seconds of the run that completed; files of the whole workspace."""

    peak_bytes: int
    seconds: float
    most_files: int = 0
    num_files: int = 0
    num_segments: int = 0


@dataclass(kw_only=True)
class Soak:
    home: Path
    nights: list[Night] = field(default_factory=list)
    num_kills: int = 0
    _rng: random.Random = field(default_factory=lambda: random.Random(5))  # noqa: S311 - when to kill, not a secret

    def night(self) -> None:
        """A corpus that is half new; its run is killed, and in the end completes."""
        first = len(self.nights) * NEW_ROWS
        numbers = range(first, first + ROWS)
        texts = [f"Document {number} speaks of matter {number * 7919 % 1000}." for number in numbers]
        corpus = self.home / "corpus.parquet"
        pq.write_table(pa.table({"id": numbers, "text": texts}), corpus)
        for _ in range(KILLS_A_NIGHT):
            self._kill(corpus)
        self.nights.append(self._complete(corpus))
        self._check(first)

    def _start(self, corpus: Path) -> "subprocess.Popen[str]":
        words = [sys.executable, "-m", "batchrun", "submit", str(corpus), "--json", "--home", str(self.home)]
        return subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def _kill(self, corpus: Path) -> None:
        usual = median([night.seconds for night in self.nights] or [4.0])
        process = self._start(corpus)
        time.sleep(self._rng.uniform(0.5, usual))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            self.num_kills += 1
        process.communicate()

    def _complete(self, corpus: Path) -> Night:
        started, most_files = time.monotonic(), 0
        process = self._start(corpus)
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                most_files = max(most_files, watched.num_fds())
            except psutil.Error:  # it has just ended
                break
            time.sleep(0.2)
        out, err = process.communicate()
        assert 0 == process.returncode, err
        said = json.loads(out.splitlines()[-1])
        assert [ROWS, ROWS] == [said["rows"]["total"], said["rows"]["ok"]]
        record = next(self.home.glob(f"checkpoints/*/seed-0/corpora/*/runs/{said['run_id']}.json"))
        files = [path for path in self.home.rglob("*") if path.is_file()]
        assert not [path for path in files if path.name.startswith(".tmp-")]
        return Night(
            peak_bytes=json.loads(record.read_bytes())["metrics"]["peak_memory_bytes"],
            seconds=time.monotonic() - started,
            most_files=most_files,
            num_files=len(files),
            num_segments=sum(path.parent.name == "segments" for path in files),
        )

    def _check(self, first: int) -> None:
        """Every row once, in order, with the summary of its own text."""
        rows = pq.read_table(self.home / "corpus.summaries.parquet", columns=["doc_id", "summary"])
        assert list(range(first, first + ROWS)) == rows["doc_id"].to_pylist()
        summaries = zip(rows["doc_id"].to_pylist(), rows["summary"].to_pylist(), strict=True)
        wrong = [
            number for number, summary in summaries if not summary.startswith(f"Document {number} speaks")
        ]
        assert not wrong

    def told(self) -> str:
        """The first nights beside the last ones."""
        tenth = max(1, len(self.nights) // 10)
        early, late = self.nights[1 : tenth + 1], self.nights[-tenth:]
        lines = [
            f"{len(self.nights)} nights, {self.num_kills} kills, {len(self.nights) * NEW_ROWS + NEW_ROWS:,} documents"
        ]
        for name, scale, unit in (
            ("peak_bytes", 2**20, "MiB at the peak"),
            ("most_files", 1, "open files at most"),
            ("seconds", 1, "s"),
            ("num_segments", 1, "segments"),
            ("num_files", 1, "files in the workspace"),
        ):
            values = [median(getattr(night, name) for night in nights) / scale for nights in (early, late)]
            lines.append(f"first tenth {values[0]:8,.1f}, last tenth {values[1]:8,.1f} {unit}")
        return "\n".join(lines)


def soak(home: Path, model: Path, seconds: float) -> Soak:
    """Nights for so many seconds. Raises AssertionError where one does not end as it should."""
    (home / "jobs").mkdir(parents=True, exist_ok=True)
    (home / "jobs" / "summarize.toml").write_text(SPEC.format(model=model))
    found = Soak(home=home)
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(found.nights) < 2:
        found.night()
    return found


if __name__ == "__main__":
    print(soak(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])).told())
