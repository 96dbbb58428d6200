"""What the tests share."""

import os
from pathlib import Path

import pytest

from tests.commands import Bench

# Two spinning threads on a busy machine: 5.5 s for 16 requests of the tiny Llama; one thread: 0.7 s.
os.environ.setdefault("OMP_NUM_THREADS", "1")


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
