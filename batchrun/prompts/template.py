"""The model's chat template, rendered once for the whole job, with a stand-in for what the user says.

What is before and after the stand-in is encoded once; the words of a prompt and its document go between
the two as plain text. So nothing in them can act on the template, and a prompt's length is known as soon
as its document is tokenized.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from batchrun.errors import ConfigError
from batchrun.prompts.tokenizer import Tokenizer

STAND_IN = "BATCHRUN-USER-SPEAKS-HERE"


@dataclass(frozen=True, kw_only=True)
class ChatTemplate:
    """The tokens before and after what the user says.

    `opens_thought`: the answer begins inside `<think>`, as some models that think aloud have it.
    """

    before: list[int]
    after: list[int]
    opens_thought: bool = False


def chat_template(folder: Path, system: str, tokenizer: Tokenizer) -> ChatTemplate:
    """The template of a model. A base model, which has none, gets the words as they are, on lines of their own.

    Raises ConfigError where the model's template can not be used.
    """
    source, special = _source(folder)
    if source is None:
        return _without_template(system, special.get("bos_token", ""), tokenizer)
    rendered = _render(folder, source, special, system)
    before, found, after = rendered.partition(STAND_IN)
    if not found or STAND_IN in after:
        raise ConfigError(
            f"the chat template of {folder} does not put the user's message into the prompt exactly once",
            "Use a model whose chat template renders a single user turn.",
        )
    return ChatTemplate(
        before=tokenizer.encode_template(before),
        after=tokenizer.encode_template(after),
        opens_thought=after.rstrip().endswith("<think>"),
    )


def _without_template(system: str, bos_token: str, tokenizer: Tokenizer) -> ChatTemplate:
    words = tokenizer.encode_documents([f"{system}\n\n" if system else ""]).ids.tolist()
    after = tokenizer.encode_documents(["\n\nSummary:"]).ids.tolist()
    return ChatTemplate(before=[*tokenizer.encode_template(bos_token), *words], after=after)


def _render(folder: Path, source: str, special: dict[str, str], system: str) -> str:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _raise
    environment.filters["tojson"] = lambda value, **_: msgspec.json.encode(value).decode()
    try:
        template = environment.from_string(source)
        render = partial(template.render, add_generation_prompt=True, enable_thinking=False, **special)
        return _with_system(render, system)
    except Exception as error:  # a template is a program of somebody else's, and raises anything
        raise ConfigError(
            f"the chat template of {folder} fails: {error}", "Mend chat_template in tokenizer_config.json."
        ) from error


def _with_system(render: Callable[..., str], system: str) -> str:
    """The prompt; where a template refuses a system turn or leaves it out, its text opens the user's turn."""
    if not system:
        return render(messages=[_message("user", STAND_IN)])
    with suppress(_RefusedError):
        rendered = render(messages=[_message("system", system), _message("user", STAND_IN)])
        if system.strip() in rendered:
            return rendered
    return render(messages=[_message("user", f"{system}\n\n{STAND_IN}")])


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


class _RefusedError(TemplateError):
    """The template itself refused the messages, as those without a system role do."""


def _raise(message: str) -> None:
    raise _RefusedError(message)


def _source(folder: Path) -> tuple[str | None, dict[str, str]]:
    """The template's source, None where the model has none, and the control tokens it may name."""
    config = _read_json(folder / "tokenizer_config.json")
    special = {
        name: _content(config.get(name)) for name in ("bos_token", "eos_token", "unk_token", "pad_token")
    }
    file = folder / "chat_template.jinja"
    source = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
    if isinstance(source, list):
        source = next((item["template"] for item in source if item.get("name") == "default"), None)
    named = {name: value for name, value in special.items() if value is not None}
    return source if isinstance(source, str) else None, named


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} is no JSON: {error}", "Mend the model folder.") from error
