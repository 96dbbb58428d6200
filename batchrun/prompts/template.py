"""The prompt around a document: the model's chat template, rendered once for the whole job.

The template is rendered with a stand-in for the document; what is before and after the stand-in is
encoded once, and a document's own tokens go between the two. So the instruction comes first and is
shared by all prompts, nothing in a document can act on the template, and a prompt's length is known
as soon as its document is tokenized.
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
from batchrun.spec import PromptSpec

STAND_IN = "BATCHRUN-DOCUMENT-STANDS-HERE"


@dataclass(frozen=True, kw_only=True)
class PromptFrame:
    """The tokens before and after a document."""

    prefix: list[int]
    suffix: list[int]

    @property
    def num_tokens(self) -> int:
        return len(self.prefix) + len(self.suffix)

    def around(self, document: list[int]) -> list[int]:
        return [*self.prefix, *document, *self.suffix]


def prompt_frame(folder: Path, prompt: PromptSpec, tokenizer: Tokenizer) -> PromptFrame:
    """The frame of a job's prompts. Raises ConfigError where the model's template can not be used."""
    rendered = _render(folder, prompt)
    before, found, after = rendered.partition(STAND_IN)
    if not found or STAND_IN in after:
        raise ConfigError(
            f"the chat template of {folder} does not put the user's message into the prompt exactly once",
            "Use a model whose chat template renders a single user turn.",
        )
    return PromptFrame(prefix=tokenizer.encode_template(before), suffix=tokenizer.encode_template(after))


def _render(folder: Path, prompt: PromptSpec) -> str:
    source, variables = _chat_template(folder)
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _raise
    environment.filters["tojson"] = lambda value, **_: msgspec.json.encode(value).decode()
    try:
        template = environment.from_string(source)
        return _with_system(partial(template.render, add_generation_prompt=True, **variables), prompt)
    except Exception as error:  # a template is a program of somebody else's, and raises anything
        raise ConfigError(
            f"the chat template of {folder} fails: {error}", "Mend chat_template in tokenizer_config.json."
        ) from error


def _with_system(render: Callable[..., str], prompt: PromptSpec) -> str:
    """The prompt; where a template refuses a system turn or leaves it out, its text opens the user's turn."""
    content = f"{prompt.instruction}\n\n{STAND_IN}"
    if prompt.system:
        with suppress(_RefusedError):
            rendered = render(messages=[_message("system", prompt.system), _message("user", content)])
            if prompt.system.strip() in rendered:
                return rendered
        content = f"{prompt.system}\n\n{content}"
    return render(messages=[_message("user", content)])


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


class _RefusedError(TemplateError):
    """The template itself refused the messages, as those without a system role do."""


def _raise(message: str) -> None:
    raise _RefusedError(message)


def _chat_template(folder: Path) -> tuple[str, dict[str, Any]]:
    """The template's source and the control tokens it may name."""
    config = _read_json(folder / "tokenizer_config.json")
    special = {
        name: _content(config.get(name)) for name in ("bos_token", "eos_token", "unk_token", "pad_token")
    }
    file = folder / "chat_template.jinja"
    source = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
    if isinstance(source, list):
        source = next((item["template"] for item in source if item.get("name") == "default"), None)
    if not isinstance(source, str):
        raise ConfigError(
            f"{folder} has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json)",
            "Use an instruct model.",
        )
    return source, {name: value for name, value in special.items() if value is not None}


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} is no JSON: {error}", "Mend the model folder.") from error
