"""An Airflow 3 operator that runs `batchrun submit` of an environment of its own.

The module needs Airflow and the standard library alone: batchrun, vLLM and torch are installed where `batchrun_bin` is.
"""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from airflow.sdk import BaseOperator

try:
    from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
except ImportError:  # before Airflow 3.2
    from airflow.exceptions import AirflowException, AirflowFailException, AirflowSkipException

KILL_SECONDS = 30.0
"""What a run may take to end after SIGTERM: finished rows are durable within three seconds, an engine ends in ten."""
COMPLETE, TOO_MANY_FAILED, WINDOW_OVER = 0, 3, 4
FINAL = {2: "usage", 65: "corpus unusable", 66: "corpus not found", 78: "job spec wrong"}
"""Exit codes that another try does not mend."""

Choice = Literal["success", "failure", "skip"]


class BatchrunOperator(BaseOperator):
    """Submit a corpus, or go on with it: a retry resumes, and computes nothing twice.

    `corpus`, `output_path`, `job`, `home`, `deadline`, `time_budget`, `release` and `arguments` are those of the command line, and
    templates. The JSON summary is pushed as XCom `summary`, also where the task fails, and returned.

    Exit 75 and other passing ends raise AirflowException, so that the task's `retries` apply; 2, 65, 66 and 78 raise
    AirflowFailException, and so does 3 (more failed rows than `--max-error-rate`). `on_window_over` says what 4 is,
    `on_nothing_to_do` what 0 without a computed row is. A task that is killed ends the run in good order.
    """

    template_fields: Sequence[str] = (
        "corpus",
        "output_path",
        "job",
        "home",
        "deadline",
        "time_budget",
        "release",
        "arguments",
        "env",
    )

    def __init__(
        self,
        *,
        corpus: str | Sequence[str],
        output_path: str | None = None,
        job: str | None = None,
        home: str | None = None,
        deadline: str | None = None,
        time_budget: str | None = None,
        release: str | None = None,
        arguments: Sequence[str] = (),
        batchrun_bin: str = "batchrun",
        env: Mapping[str, str] | None = None,
        on_window_over: Choice = "success",
        on_nothing_to_do: Literal["success", "skip"] = "success",
        **of_the_task: Any,
    ) -> None:
        super().__init__(**of_the_task)
        self.corpus = corpus
        self.output_path = output_path
        self.job = job
        self.home = home
        self.deadline = deadline
        self.time_budget = time_budget
        self.release = release
        self.arguments = arguments
        self.batchrun_bin = batchrun_bin
        self.env = env
        self.on_window_over = on_window_over
        self.on_nothing_to_do = on_nothing_to_do
        self._process: subprocess.Popen[str] | None = None

    def execute(self, context: Any) -> dict[str, Any]:
        """Run it to its end. Raises as the class says."""
        with tempfile.TemporaryDirectory(prefix="batchrun-") as folder:
            summary_file = Path(folder) / "summary.json"
            code = self._run(self.command(summary_file))
            summary: dict[str, Any] = (
                json.loads(summary_file.read_text(encoding="utf-8")) if summary_file.exists() else {}
            )
        context["ti"].xcom_push(key="summary", value=summary)
        self._raise_for(code, summary)
        return summary

    def command(self, summary_file: Path) -> list[str]:
        """The command line."""
        corpora = [self.corpus] if isinstance(self.corpus, str) else list(self.corpus)
        named = {
            "--output": self.output_path,
            "--job": self.job,
            "--home": self.home,
            "--deadline": self.deadline,
            "--time-budget": self.time_budget,
            "--release": self.release,
            "--summary-file": str(summary_file),
        }
        options = [word for name, value in named.items() if value for word in (name, value)]
        return [self.batchrun_bin, "submit", *corpora, *options, *self.arguments]

    def on_kill(self) -> None:
        """End the run in good order, and after KILL_SECONDS in any case."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(KILL_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _run(self, words: list[str]) -> int:
        self.log.info("running: %s", " ".join(words))
        inherited = {
            name: value for name, value in os.environ.items() if name != "PYTHONPATH"
        }  # it is Airflow's
        environment = inherited | dict(self.env or {})
        environment["BATCHRUN_ENDS_WITH_PARENT"] = str(
            os.getpid()
        )  # else a retry would find the run holding its lock
        self._process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=environment,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.log.info(line.rstrip())
        return self._process.wait()

    def _raise_for(self, code: int, summary: Mapping[str, Any]) -> None:
        said = f"batchrun ended with {code}: {summary.get('stop_reason') or 'see the log'}"
        if code == COMPLETE:
            if self.on_nothing_to_do == "skip" and not summary.get("rows", {}).get("computed"):
                raise AirflowSkipException("there was nothing to do")
        elif code == WINDOW_OVER and self.on_window_over == "success":
            self.log.info("the window is over: the rest is for the next one")
        elif code == WINDOW_OVER and self.on_window_over == "skip":
            raise AirflowSkipException(said)
        elif code in FINAL or code in (TOO_MANY_FAILED, WINDOW_OVER):
            raise AirflowFailException(f"{said} ({FINAL[code]})" if code in FINAL else said)
        else:
            raise AirflowException(said)
