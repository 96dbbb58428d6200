"""Llamas with random weights, built where they run: nothing is downloaded, and nothing large is written.

A folder holds the configuration and a tokenizer of a few words, for engines look for one; prompts are token ids.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.materials.tiny_llama import SHAPE as TINY

LLAMA = {
    "vocab_size": 128256,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "rope_theta": 500_000.0,
    "tie_word_embeddings": False,  # tied, a random model repeats its last token
}
SHAPES: dict[str, dict[str, Any]] = {
    "1B": LLAMA
    | {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "head_dim": 64,
        "dtype": "bfloat16",
    },
    "8B": LLAMA
    | {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "head_dim": 128,
        "dtype": "bfloat16",
    },
    "toy": TINY,
}
"""The shapes of Llama 3.2 1B and Llama 3.1 8B."""
WORDS = ("<unk>", "<s>", "</s>", "word")


def make_folder(size: str, folder: Path) -> Path:
    """A model folder without weights. Needs transformers."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig

    folder.mkdir(parents=True, exist_ok=True)
    LlamaConfig(**SHAPES[size], architectures=["LlamaForCausalLM"]).save_pretrained(folder)
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))  # noqa: S106 - no password
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@contextmanager
def random_weights(device: str) -> Iterator[None]:
    """While it holds, transformers makes the weights of a model on `device` instead of reading them, those of
    one folder once.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    original, made = AutoModelForCausalLM.from_pretrained, {}

    def build(folder: Path, *, dtype: Any, **_: Any) -> Any:
        if folder not in made:
            config = AutoConfig.from_pretrained(folder)
            with torch.device(device):
                torch.manual_seed(0)
                made[folder] = AutoModelForCausalLM.from_config(config, dtype=dtype)
        return made[folder]

    AutoModelForCausalLM.from_pretrained = build
    try:
        yield
    finally:
        AutoModelForCausalLM.from_pretrained = original
