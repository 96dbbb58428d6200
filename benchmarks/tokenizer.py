"""Three ways through one tokenizer that isolates digits: `python -m benchmarks.tokenizer`.

`tokenizers`, fastokens as it is, and fastokens on texts cut at their digits (`batchrun.prompts.fast`), on
the READMEs of installed packages; arms interleaved, five rounds, medians; the ids of all three are compared.
"""

import json
import statistics
import time
from collections.abc import Callable

import numpy as np
from tokenizers import Tokenizer

from batchrun.prompts.fast import DigitEncoder, PlainEncoder
from batchrun.prompts.token_batch import TokenBatch, from_lists
from tests.materials.readmes import readmes
from tests.materials.smollm2 import make_smollm2

ROUNDS = 5


def main() -> None:
    config = (make_smollm2() / "tokenizer.json").read_text()
    texts = [readme.text for readme in readmes()]
    slow = Tokenizer.from_str(config)
    slow.encode_special_tokens = True
    arms: dict[str, Callable[[list[str]], TokenBatch]] = {
        "tokenizers": lambda some: from_lists(
            [found.ids for found in slow.encode_batch_fast(some, add_special_tokens=False)]
        ),
        "fastokens": PlainEncoder(config).encode,
        "fastokens, cut at digits": DigitEncoder(json.loads(config)).encode,
    }
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    found: dict[str, TokenBatch] = {}
    for _ in range(ROUNDS):
        for name, encode in arms.items():
            started = time.perf_counter()
            found[name] = encode(texts)
            seconds[name].append(time.perf_counter() - started)
    first = found["tokenizers"]
    print(f"{len(texts)} texts, {len(first.ids):,} tokens, medians of {ROUNDS} rounds")
    for name, took in seconds.items():
        same = np.array_equal(first.ids, found[name].ids) and np.array_equal(
            first.offsets, found[name].offsets
        )
        rate = len(first.ids) / statistics.median(took) / 1e6
        print(f"  {name:<26} {rate:6.1f} M tokens/s   ids {'equal' if same else 'DIFFER'}")


if __name__ == "__main__":
    main()
