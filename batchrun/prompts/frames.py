"""The words around a document: what each kind of call asks for, as tokens before and after the document."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from batchrun.prompts.template import ChatTemplate, chat_template
from batchrun.prompts.tokenizer import Tokenizer
from batchrun.spec import PromptSpec

FRAMES_KEPT = 256
_NAME = re.compile(r"""\{([^{}"'\n]+)\}""")


@dataclass(frozen=True, kw_only=True)
class PromptFrame:
    """The tokens before and after a document."""

    prefix: list[int]
    suffix: list[int]

    @property
    def num_tokens(self) -> int:
        return len(self.prefix) + len(self.suffix)

    def around(self, document: Sequence[int]) -> list[int]:
        return [*self.prefix, *document, *self.suffix]


class Prompts:
    """The frames of a job's calls. `values` are the columns named in the instruction, of one row, by name.

    The instruction comes first, so that all prompts begin alike. The number of a part stands in its prompt,
    the number of parts does not: a document that grew at its end keeps its earlier parts' prompts.
    """

    def __init__(self, instruction: str, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self._instruction = instruction
        self._template = template
        self._tokenizer = tokenizer
        self._frame = lru_cache(FRAMES_KEPT)(self._make_frame)
        self._plain = self._make_frame(self.document_words({}))

    @property
    def opens_thought(self) -> bool:
        return self._template.opens_thought

    @property
    def template_tokens(self) -> int:
        """What a prompt has beside its words and its document."""
        return len(self._template.before) + len(self._template.after)

    def document(self, values: Mapping[str, str]) -> PromptFrame:
        """Around a whole document."""
        return self._frame(self.document_words(values)) if values else self._plain

    def document_words(self, values: Mapping[str, str]) -> str:
        """What stands before a whole document."""
        return f"{substituted(self._instruction, values)}\n\n"

    def part(self, number: int, title: str, values: Mapping[str, str]) -> PromptFrame:
        """Around part `number`, from 1, of a document with this title, or none."""
        titled = f", titled “{title}”" if title else ""
        where = f"The document is long{titled}; this is part {number} of it. Summarize this part.\n\n"
        return self._frame(f"{substituted(self._instruction, values)}\n\n{where}")

    def merge(self, title: str, values: Mapping[str, str]) -> PromptFrame:
        """Around the summaries of parts, each under the numbers of the parts it came from."""
        titled = f", titled “{title}”" if title else ""
        what = (
            f"The document is long{titled}. Instead of it you are given summaries of its parts, in order. "
            "Summarize the whole document from them, and add nothing that they do not say.\n\n"
        )
        return self._frame(f"{substituted(self._instruction, values)}\n\n{what}")

    def _make_frame(self, words: str) -> PromptFrame:
        spoken = self._tokenizer.encode_documents([words]).ids.tolist()
        return PromptFrame(prefix=[*self._template.before, *spoken], suffix=self._template.after)


def job_prompts(folder: Path, prompt: PromptSpec, tokenizer: Tokenizer) -> Prompts:
    """The prompts of a job with a model. Raises ConfigError where the model's template can not be used."""
    return Prompts(prompt.instruction, chat_template(folder, prompt.system, tokenizer), tokenizer)


def names_in(instruction: str) -> list[str]:
    """The names in braces of an instruction, each once, in order: columns, where the corpus has them."""
    return list(dict.fromkeys(_NAME.findall(instruction)))


def substituted(instruction: str, values: Mapping[str, str]) -> str:
    """The instruction with `values` for their names in braces, in one pass: braces in a value stay text."""
    return _NAME.sub(lambda found: values.get(found[1], found[0]), instruction)
