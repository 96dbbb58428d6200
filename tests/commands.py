"""Running batchrun in tests: in this process for speed, as a process of its own where signals matter."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrun.cli.main import code_of

LEAD_SPEC = """
model = "{model}"

[output]
max_tokens = 20

[long_documents]
policy = "fail"

[engine]
kind = "lead"
max_model_len = 512
max_num_batched_tokens = 64

[engine.options]
{options}
"""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a command left: its exit code and its two streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The last line of standard output."""
        return json.loads(self.out.strip().splitlines()[-1])


class Bench:
    """A workspace with one lead job, and commands run in it."""

    def __init__(
        self, home: Path, model: Path, capsys: pytest.CaptureFixture[str], *, writes_spec: bool = True
    ) -> None:
        self.home = home
        self.model = model
        self._capsys = capsys
        (home / "jobs").mkdir(parents=True, exist_ok=True)
        if writes_spec:
            self.write_spec()

    def write_spec(self, options: str = "", name: str = "summarize", extra: str = "") -> Path:
        path = self.home / "jobs" / f"{name}.toml"
        path.write_text(extra + LEAD_SPEC.format(model=self.model, options=options))
        return path

    def corpus(self, texts: Sequence[str | None], name: str = "corpus.parquet", **columns: Any) -> Path:
        path = self.home / name
        pq.write_table(
            pa.table({"id": list(range(len(texts))), "text": pa.array(texts, pa.string())} | columns), path
        )
        return path

    def run(self, *arguments: object) -> Result:
        """In this process."""
        self._capsys.readouterr()
        words = [str(argument) for argument in arguments]
        where = [] if words[0] in {"init", "runbook"} else ["--home", str(self.home)]
        code = code_of([*words, *where])
        captured = self._capsys.readouterr()
        return Result(code=int(code), out=captured.out, err=captured.err)

    def submit(self, *arguments: object) -> Result:
        return self.run("submit", *arguments, "--json")

    def start(
        self, *arguments: object, ledger: Path | None = None, **changes: Any
    ) -> "subprocess.Popen[str]":
        """As a process of its own, in a session of its own; with a `ledger` of what the engine computes."""
        module = ["batchrun"] if ledger is None else ["tests.ledger", str(ledger)]
        words = [sys.executable, "-m", *module, *map(str, arguments), "--home", str(self.home)]
        return subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | changes.pop("env", {}),
            **changes,
        )

    def segments(self) -> list[Path]:
        return sorted(self.home.glob("checkpoints/*/seed-*/segments/*.parquet"))

    def output(self, name: str = "corpus.summaries.parquet") -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = pq.read_table(self.home / name).to_pylist()
        return rows


def set_engine(path: Path, **values: Any) -> None:
    """Change keys of a spec's [engine]."""
    before, engine, after = path.read_text().partition("[engine]\n")
    kept = [line for line in after.splitlines() if line.split(" ")[0] not in values]
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    path.write_text("\n".join([before + engine.strip(), *lines, *kept]))


def texts(number: int) -> list[str]:
    """Distinct texts of a few dozen tokens."""
    return [
        f"Document {i} speaks of matter {i * 7919 % 1000} and of nothing else. " * (1 + i % 4)
        for i in range(number)
    ]
