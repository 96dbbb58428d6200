"""One tokenizer file of 2 MB, read twice a second, would be most of a small run in this process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest.mock import patch

from batchrun.prompts.tokenizer import Tokenizer


@contextmanager
def tokenizers_read_once() -> Iterator[Callable[[Path], Tokenizer]]:
    """Jobs share what is read of a folder's tokenizer while its file stays the same."""

    @cache
    def read(folder: Path, _: tuple[int, int]) -> Tokenizer:
        return Tokenizer(folder)

    def tokenizer(folder: Path) -> Tokenizer:
        file = folder / "tokenizer.json"
        if not file.exists():
            return Tokenizer(folder)
        return read(folder, (file.stat().st_mtime_ns, file.stat().st_size))

    with patch("batchrun.job.Tokenizer", tokenizer):
        yield tokenizer
