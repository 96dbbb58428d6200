"""`python -m tests.crashes FOLDER MODEL POINTS CUTS`: one in POINTS crash points is tried, one in CUTS power losses."""

import os
import sys
from pathlib import Path

# Before the first import of a library that would start threads, which no fork takes along.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

from tests.crashes.matrix import kill_everywhere
from tests.crashes.power import cut_everywhere
from tests.crashes.scenes import prepare
from tests.tokenizers import tokenizers_read_once


def main() -> None:
    folder, model, points, cuts = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    with tokenizers_read_once() as tokenizer:
        tokenizer(model)
        stage = prepare(folder, model)
        print(f"{cut_everywhere(stage, cuts)} losses of power")
        print(f"{kill_everywhere(stage, points)} kills at named points")


if __name__ == "__main__":
    main()
