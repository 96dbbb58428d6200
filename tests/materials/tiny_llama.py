"""A two-layer Llama with random weights and SmolLM2's tokenizer: `python -m tests.materials.tiny_llama [FOLDER]`.

It starts and runs fast enough for tests of a real engine. What it writes is noise, but noise that depends on
the whole prompt, differs from seed to seed, and ends by itself now and then.
"""

import math
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from tests.materials.model_folder import MODELS, build_once, make_from_command_line
from tests.materials.smollm2 import FOLDER as SMOLLM2
from tests.materials.smollm2 import make_smollm2

FOLDER = MODELS / "tiny-llama"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
SHAPE = {
    "vocab_size": 49152,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,  # the smallest that vLLM's attention on a CPU takes
    "max_position_embeddings": 2048,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "tie_word_embeddings": False,  # tied, a random model repeats its last token
    "dtype": "float32",
}
# Weights are normal with a deviation of gain / sqrt(inputs), so that a gain of 1 keeps the scale.
GAINS = {
    "q_proj": 2.0,  # attention that picks a few tokens: at 1 most greedy outputs repeat one token,
    "k_proj": 2.0,  # at 3 prompts that differ in one word can get the same output
    "v_proj": 3.0,
    "o_proj": 3.0,
    "lm_head": 3.0,
}
END_GAIN = 2.0  # a larger row for the end token: it wins about one step in fifty


def make_tiny_llama(folder: Path, tokenizer_folder: Path, seed: int = 0) -> Path:
    """Return `folder` with the model in it, after making it from `seed` if it is not there.

    Folders of different seeds have the same files in the same sizes, like a model before and after a
    training. The tokenizer's files are copied from `tokenizer_folder`.
    """
    return build_once(folder, partial(_fill, tokenizer_folder=tokenizer_folder, seed=seed))


def _fill(folder: Path, *, tokenizer_folder: Path, seed: int) -> None:
    _random_model(seed).save_pretrained(folder)
    for name in TOKENIZER_FILES:
        shutil.copyfile(tokenizer_folder / name, folder / name)


def _random_model(seed: int) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(**SHAPE))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:  # norms stay at one
                weight.normal_(std=_deviation(name, weight.shape[1]), generator=generator)
        model.lm_head.weight[SHAPE["eos_token_id"]] *= END_GAIN
    return model


def _deviation(name: str, num_inputs: int) -> float:
    if "embed_tokens" in name:
        return 1.0
    gain = next((gain for part, gain in GAINS.items() if part in name), 1.0)
    return gain / math.sqrt(num_inputs)


def _make(folder: Path) -> Path:
    return make_tiny_llama(folder, make_smollm2(SMOLLM2))


if __name__ == "__main__":
    make_from_command_line(_make, FOLDER)
