"""What the tests share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import Bench
from tests.tokenizers import tokenizers_read_once

# Two spinning threads on a busy machine: 5.5 s for 16 requests of the tiny Llama; one thread: 0.7 s.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# As the engine sets it; a test that imports torch before an engine does would have its warnings printed.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts a real engine comes first, so that no worker is left with minutes of it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("engine") is None)


@pytest.fixture(scope="session")
def tiny_llama() -> Path:
    """The folder of a two-layer random Llama, made at the first use on this machine."""
    from tests.materials.smollm2 import FOLDER as SMOLLM2
    from tests.materials.smollm2 import make_smollm2
    from tests.materials.tiny_llama import FOLDER, make_tiny_llama

    return make_tiny_llama(FOLDER, make_smollm2(SMOLLM2))


@pytest.fixture
def bench(tmp_path: Path, tiny_llama: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    """A workspace with the lead engine under the tiny Llama's tokenizer."""
    return Bench(tmp_path, tiny_llama, capsys)


@pytest.fixture(autouse=True)
def _there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the tests are started in, what is printed has the width that it has in a pipe."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session", autouse=True)
def _tokenizers_are_read_once() -> Iterator[None]:
    with tokenizers_read_once():
        yield
