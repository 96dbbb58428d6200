"""Texts as they are found, made into texts that can be tokenized."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from batchrun.documents import EMPTY, DocumentBatch, Verdict
from batchrun.records import ErrorType, Flag, RowStatus


def without_surrogates(text: str) -> str:
    """The text with U+FFFD for each lone surrogate."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class TextColumn:
    """Collects the texts of a batch row by row, with a verdict or a flag where one is due."""

    def __init__(self) -> None:
        self.texts: list[str | None] = []
        self.verdicts: dict[int, Verdict] = {}
        self.flags: dict[int, tuple[str, ...]] = {}

    def add(self, value: Any, where: str) -> None:
        """A value of the text column; `where` names its file and row for the message."""
        if isinstance(value, bytes):
            value = self._decode(value)
        if isinstance(value, str):
            self._add_text(value)
        elif value is None:
            self.refuse(EMPTY)
        else:
            self.fail(
                ErrorType.NOT_TEXT, f"{where}: the text is of type {type(value).__name__}, not a string"
            )

    def fail(self, error_type: ErrorType, error: str) -> None:
        self.refuse(Verdict(status=RowStatus.FAILED, error_type=error_type, error=error))

    def refuse(self, verdict: Verdict) -> None:
        self.verdicts[len(self.texts)] = verdict
        self.texts.append(None)

    def flag(self, flag: Flag) -> None:
        """Flag the row that is added next."""
        self.flags[len(self.texts)] = (flag,)

    def add_all(self, values: Sequence[str | None]) -> None:
        """Many texts that are known to be valid Unicode."""
        for value in values:
            if value is None or not value or value.isspace():
                self.refuse(EMPTY)
            else:
                self.texts.append(value)

    def to_batch(
        self, source: int | tuple[int, ...], first_row: int, carried: dict[str, pa.Array]
    ) -> DocumentBatch:
        """The rows collected, with their carried columns by name, `doc_id` first."""
        return DocumentBatch(
            source=source,
            first_row=first_row,
            texts=self.texts,
            verdicts=self.verdicts,
            flags=self.flags,
            carried=pa.RecordBatch.from_arrays(list(carried.values()), names=list(carried)),
        )

    def _add_text(self, text: str) -> None:
        if not text or text.isspace():
            self.refuse(EMPTY)
            return
        self.texts.append(text if text.isascii() else self._without_surrogates(text))

    def _without_surrogates(self, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            self.flag(Flag.REPLACED_CHARACTERS)
            return without_surrogates(text)
        return text

    def _decode(self, value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError:
            self.flag(Flag.REPLACED_CHARACTERS)
            return value.decode(errors="replace")
