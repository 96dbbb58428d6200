"""What a person would write instead of batchrun: `python -m benchmarks.rivals ARM ASSIGNMENT ANSWERS`.

For `benchmarks.compare`, which gives each a process of its own. Seconds are counted from the engine loaded to
the last output.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchrun.engines.vllm import WARM_OUTPUT, WARM_PROMPT
from batchrun.engines.vllm_start import prepare_environment
from benchmarks.assignment import Answers, Assignment, read_assignment, write

CHUNK = 16
BATCH = 8
PLAIN_TEMPLATE = "{{ messages[0]['content'] }}"
"""`vllm run-batch` knows chats alone; this makes a chat's one message the whole prompt."""


def generate(asked: Assignment, _: Path) -> Answers:
    """`LLM.generate`, everything in one call."""
    return _generate(asked, len(asked.prompts))


def chunks(asked: Assignment, _: Path) -> Answers:
    """`LLM.generate`, sixteen documents a call, the next when all are done."""
    return _generate(asked, CHUNK)


def _generate(asked: Assignment, size: int) -> Answers:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    prepare_environment()
    from vllm import LLM, SamplingParams, TokensPrompt

    llm = LLM(**asked.vllm_settings, use_tqdm_on_load=False)
    greedy = SamplingParams(temperature=0, max_tokens=asked.max_tokens)
    prompts = [TokensPrompt(prompt_token_ids=prompt) for prompt in asked.prompts]
    warm = SamplingParams(
        temperature=0, max_tokens=WARM_OUTPUT
    )  # as batchrun's engine is when its clock starts
    llm.generate(TokensPrompt(prompt_token_ids=[0] * WARM_PROMPT), warm, use_tqdm=False)
    started = time.monotonic()
    outputs = [
        output
        for start in range(0, len(prompts), size)
        for output in llm.generate(prompts[start : start + size], greedy, use_tqdm=False)
    ]
    seconds = time.monotonic() - started
    return Answers(
        running_seconds=seconds, token_ids=[list(output.outputs[0].token_ids) for output in outputs]
    )


def run_batch(asked: Assignment, scratch: Path) -> Answers:
    """The command `vllm run-batch`, in this process, with a clock around the part behind the engine's start.

    It takes chats, not token ids: each prompt is the text of one message under a template that adds nothing.
    What it made of the texts is compared with the prompts of the other arms.
    """
    prepare_environment()
    given, got = scratch / "requests.jsonl", scratch / "responses.jsonl"
    given.write_text(
        "".join(map(_request_line, range(len(asked.texts)), asked.texts, [asked] * len(asked.texts)))
    )
    template = scratch / "plain.jinja"
    template.write_text(PLAIN_TEMPLATE)
    seconds = _timed_command(["-i", str(given), "-o", str(got), "--chat-template", str(template)], asked)
    bodies = _bodies(got)
    same = sum(body["prompt_token_ids"] == prompt for body, prompt in zip(bodies, asked.prompts, strict=True))
    return Answers(
        running_seconds=seconds,
        token_ids=[body["choices"][0]["token_ids"] for body in bodies],
        remark=f"prompts given as text; {same} of {len(bodies)} became the same token ids",
    )


def _request_line(number: int, text: str, asked: Assignment) -> str:
    body = {
        "model": asked.model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": asked.max_tokens,
        "temperature": 0,
        "return_token_ids": True,
    }
    line = {"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(line) + "\n"


def _timed_command(files: Sequence[str], asked: Assignment) -> float:
    """Seconds of the command after its engine has started.

    It is what `vllm run-batch` calls: the program `vllm` itself ends with an error in the CPU build, which is
    installed under another name than the one whose version it asks for.
    """
    from vllm.entrypoints.launchers import run_batch as command

    inner, seconds = command.run_batch, []

    async def timed(*arguments: Any) -> None:
        started = time.monotonic()
        await inner(*arguments)
        seconds.append(time.monotonic() - started)

    command.run_batch = timed
    sys.argv = ["run-batch", *files, "--generation-config", "vllm", *_options(asked.vllm_settings)]
    asyncio.run(command.main(command.parse_args()))
    return sum(seconds)


def _options(settings: dict[str, Any]) -> list[str]:
    words = []
    for name, value in settings.items():
        option = f"--{name.replace('_', '-')}"
        words += [option] if value is True else [option, str(value)]
    return words


def _bodies(path: Path) -> list[dict[str, Any]]:
    """The responses in the order of the requests."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    lines.sort(key=lambda line: int(line["custom_id"]))
    return [line["response"]["body"] for line in lines]


def padded(asked: Assignment, _: Path) -> Answers:
    """`generate` of transformers: eight documents as they come, padded to the longest of them on the left."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(asked.model, dtype=getattr(torch, asked.dtype))
    model = model.to(device).eval()
    ends = _end_token_ids(model, asked.model)
    started = time.monotonic()
    outputs: list[list[int]] = []
    for start in range(0, len(asked.prompts), BATCH):
        outputs += _padded_batch(model, asked.prompts[start : start + BATCH], asked.max_tokens, ends)
    seconds = time.monotonic() - started
    lengths = list(map(len, asked.prompts))
    return Answers(
        running_seconds=seconds,
        token_ids=outputs,
        remark=f"padding share {padding_share(lengths, BATCH):.2f}",
    )


def padding_share(lengths: Sequence[int], rows: int) -> float:
    """Of the positions of prompts in batches of `rows` as they come: those that are padding."""
    batches = [lengths[start : start + rows] for start in range(0, len(lengths), rows)]
    positions = sum(max(batch) * len(batch) for batch in batches)
    return 1 - sum(lengths) / positions


def _padded_batch(
    model: Any, prompts: Sequence[list[int]], max_tokens: int, ends: list[int]
) -> list[list[int]]:
    import torch

    width, end = max(map(len, prompts)), ends[0]
    ids = torch.tensor([[end] * (width - len(prompt)) + prompt for prompt in prompts], device=model.device)
    mask = torch.tensor(
        [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=model.device
    )
    with torch.inference_mode():
        found = model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=ends,
            pad_token_id=end,
        )
    return [_up_to_end(row, ends) for row in found[:, width:].tolist()]


def _up_to_end(token_ids: list[int], ends: list[int]) -> list[int]:
    place = next((place for place, token in enumerate(token_ids) if token in ends), len(token_ids))
    return token_ids[: place + 1]


def _end_token_ids(model: Any, folder: str) -> list[int]:
    """Those at which vLLM ends an output: the generation config's, and the tokenizer's."""
    from transformers import AutoTokenizer

    named = model.generation_config.eos_token_id
    listed = named if isinstance(named, list) else [named]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return sorted({token for token in [*listed, tokenizer.eos_token_id] if token is not None})


RIVALS = {"generate": generate, "chunks": chunks, "run-batch": run_batch, "padded": padded}


def main() -> None:
    name, asked, answered = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    write(answered, RIVALS[name](read_assignment(asked), answered.parent))


if __name__ == "__main__":
    main()
