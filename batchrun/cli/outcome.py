"""The end of a command: its exit code, and the JSON line that scripts read."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import msgspec

from batchrun.cli.console import say, show_error
from batchrun.cli.manner import Manner
from batchrun.errors import BatchrunError, InterruptedRunError, StorageError, WindowOverError
from batchrun.run_record import PhaseSeconds, RowCounts, RunRecord, RunState, TokenCounts

SUMMARY_FIELDS = (
    "job_id",
    "run_id",
    "state",
    "stop_reason",
    "exit_code",
    "output",
    "rows",
    "tokens",
    "seconds",
)


class Finished(Exception):  # noqa: N818 - an end, not an error
    """All is said; the process ends with this code."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


def summary(record: RunRecord) -> dict[str, Any]:
    """The JSON object of a run; that of a shard says which."""
    fields: dict[str, Any] = msgspec.to_builtins(record)
    return {name: fields[name] for name in (*SUMMARY_FIELDS, *(["shard"] if record.shard else []))}


def failure_summary(error: BatchrunError) -> dict[str, Any]:
    """The same object for a run that did not come to an end of its own, or did not begin."""
    if isinstance(error.record, RunRecord):
        return summary(error.record)
    if isinstance(error, WindowOverError):
        return blank_summary(RunState.INTERRUPTED, error.stop_reason, error.exit_code)
    state = RunState.INTERRUPTED if isinstance(error, InterruptedRunError) else RunState.FAILED
    return blank_summary(state, error.reason, error.exit_code)


def blank_summary(state: RunState, stop_reason: str, exit_code: int) -> dict[str, Any]:
    """The same object where there is no run to tell of."""
    empty: dict[str, Any] = msgspec.to_builtins(
        {"rows": RowCounts(), "tokens": TokenCounts(), "seconds": PhaseSeconds()}
    )
    said = {"state": state.value, "stop_reason": stop_reason, "exit_code": int(exit_code)}
    return dict.fromkeys(SUMMARY_FIELDS) | said | empty


def conclude(manner: Manner, said: dict[str, Any]) -> None:
    """Give the object to whoever asked for it: into the summary file, and as the last line of standard output."""
    write_summary(manner.summary_file, said, manner.log_format)
    if manner.as_json:
        with suppress(OSError):  # nobody reads it
            echo_json(said)


def echo_json(value: Any) -> None:
    """One line on standard output."""
    click.echo(json.dumps(value, ensure_ascii=False))


def write_summary(path: str | None, said: dict[str, Any], log_format: str = "text") -> None:
    """The object as a file, renamed into place; written over where that can not be, as Kubernetes' termination log,
    which is a mount of its own. Nothing without a path. One that can not be written is said, and changes no exit code.
    """
    if path is None:
        return
    from batchrun import atomic_file

    target, text = Path(path).absolute(), json.dumps(said, ensure_ascii=False) + "\n"
    try:
        atomic_file.write_bytes(target, text.encode(), f"summary-{os.getpid()}")
    except OSError as error:
        try:
            with target.open("r+", encoding="utf-8") as file:
                file.truncate()
                file.write(text)
        except OSError:
            say(f"the summary can not be written: {error}", log_format)


def finish_with_error(
    error: BatchrunError | OSError,
    *,
    as_json: bool,
    summary_file: str | None = None,
    log_format: str = "text",
) -> Finished:
    """Say an error, and with `--json` the object after it, as the last line."""
    if isinstance(error, OSError):
        error = StorageError(f"reading or writing failed: {error}", "Mend it, and call the command again.")
    show_error(error, log_format)
    conclude(
        Manner(as_json=as_json, summary_file=summary_file, log_format=log_format), failure_summary(error)
    )
    return Finished(error.exit_code)
