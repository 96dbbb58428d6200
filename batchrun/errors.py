"""What can go wrong, said to a person: every error names what happened and what to do next."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit status of the command line: a contract that schedulers are written against."""

    COMPLETE = 0
    USAGE = 2
    TOO_MANY_FAILED = 3
    WINDOW_OVER = 4
    LOCKED = 11
    CORPUS_UNUSABLE = 65
    CORPUS_NOT_FOUND = 66
    ENGINE_UNAVAILABLE = 69
    BUG = 70
    OUTPUT_UNWRITABLE = 73
    IO_ERROR = 74
    INTERRUPTED = 75
    CONFIG = 78
    KEYBOARD = 130


class BatchrunError(Exception):
    """An end that was foreseen: `reason` says what happened, `hint` what to do next.

    `record` is the run record where a run came to this end.
    """

    exit_code = ExitCode.BUG

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason, hint)
        self.reason = reason
        self.hint = hint
        self.record: object | None = None

    def __str__(self) -> str:
        return f"{self.reason}\n{self.hint}"


class UsageError(BatchrunError):
    exit_code = ExitCode.USAGE


class WindowOverError(BatchrunError):
    """The deadline has passed, or the time budget is spent. `stop_reason` says which."""

    exit_code = ExitCode.WINDOW_OVER

    def __init__(self, reason: str, hint: str, stop_reason: str) -> None:
        super().__init__(reason, hint)
        self.stop_reason = stop_reason


class LockedError(BatchrunError):
    exit_code = ExitCode.LOCKED


class CorpusError(BatchrunError):
    exit_code = ExitCode.CORPUS_UNUSABLE


class CorpusNotFoundError(BatchrunError):
    exit_code = ExitCode.CORPUS_NOT_FOUND


class EngineUnavailableError(BatchrunError):
    exit_code = ExitCode.ENGINE_UNAVAILABLE


class OutputError(BatchrunError):
    exit_code = ExitCode.OUTPUT_UNWRITABLE


class StorageError(BatchrunError):
    exit_code = ExitCode.IO_ERROR


class InterruptedRunError(BatchrunError):
    """The run stopped before its end and can go on at once."""

    exit_code = ExitCode.INTERRUPTED


class DamageError(InterruptedRunError):
    """A file of ours, `path` where it is one, does not hold what was written to it."""

    def __init__(self, reason: str, hint: str, path: object = None) -> None:
        super().__init__(reason, hint)
        self.path = path


class AccountingError(BatchrunError):
    """Rows in are not rows out. A bug; nothing was put in place."""


class ConfigError(BatchrunError):
    exit_code = ExitCode.CONFIG
