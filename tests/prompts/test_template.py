"""The prompt around a document: the model's chat template, rendered once, and a document's tokens between."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun.errors import ConfigError, ExitCode
from batchrun.prompts.frames import PromptFrame, job_prompts
from batchrun.prompts.template import STAND_IN
from batchrun.prompts.tokenizer import Tokenizer
from batchrun.spec import PromptSpec
from tests.fixtures import tokenizer_of
from tests.prompts.kinds import BEGIN, PRINTABLE, tokenizers_of


def prompt_frame(folder: Path, prompt: PromptSpec, tokenizer: Tokenizer) -> PromptFrame:
    return job_prompts(folder, prompt, tokenizer).document({})


PROMPT = PromptSpec(system="Be faithful.", instruction="Summarize this.")
TURNS = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}{{ '[answer]' if add_generation_prompt }}"


def model_folder(folder: Path, template: str | None, **config: Any) -> Path:
    """A model folder as far as templates go."""
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


def written_out(tokenizer: Tokenizer, frame: PromptFrame, document: str) -> str:
    """The whole prompt as the model gets it, control tokens spelt out."""
    [ids] = [tokenizer.encode_documents([document]).ids.tolist()]
    text: str = tokenizer._slow.decode(frame.around(ids), skip_special_tokens=False)
    return text


def prompt_text(
    folder: Path, tokenizer: Tokenizer, prompt: PromptSpec = PROMPT, document: str = "DOC"
) -> str:
    return written_out(tokenizer, prompt_frame(folder, prompt, tokenizer), document)


def refusal(folder: Path, tokenizer: Tokenizer, prompt: PromptSpec = PROMPT) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        prompt_frame(folder, prompt, tokenizer)
    assert ExitCode.CONFIG == caught.value.exit_code == 78
    return caught.value


def test_the_prompt_is_the_template_with_the_document_in_it(tiny_llama: Path) -> None:
    """System turn, instruction, document, and the assistant's turn begun."""
    expected = (
        "<|im_start|>system\nBe faithful.<|im_end|>\n"
        "<|im_start|>user\nSummarize this.\n\nDOC<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert expected == prompt_text(tiny_llama, tokenizer_of(tiny_llama))


def test_without_a_system_text_the_template_puts_its_own(tiny_llama: Path) -> None:
    """Its default turn stands there once, and only then."""
    default = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    tokenizer = tokenizer_of(tiny_llama)
    expected = (
        f"<|im_start|>system\n{default}<|im_end|>\n"
        "<|im_start|>user\nSummarize this.\n\nDOC<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert expected == prompt_text(
        tiny_llama, tokenizer, PromptSpec(system="", instruction="Summarize this.")
    )
    assert default not in prompt_text(tiny_llama, tokenizer)


def test_the_instruction_comes_before_the_document(tiny_llama: Path) -> None:
    """So that all prompts begin alike and share their cache; control strings of the template are tokens."""
    tokenizer = tokenizer_of(tiny_llama)
    frame = prompt_frame(tiny_llama, PROMPT, tokenizer)
    assert tokenizer.decode([frame.prefix])[0].endswith("Summarize this.\n\n")
    assert "Summarize" not in tokenizer.decode([frame.suffix])[0]
    assert (
        [one for one in frame.prefix if one < 17],
        [one for one in frame.suffix if one < 17],
    ) == ([1, 2, 1], [2, 1])
    assert len(frame.prefix) + len(frame.suffix) == frame.num_tokens
    assert [*frame.prefix, 7, 8, *frame.suffix] == frame.around([7, 8])


@settings(max_examples=40, deadline=None)
@given(document=st.text(PRINTABLE))
def test_nothing_in_a_document_acts_on_the_template(tiny_llama: Path, document: str) -> None:
    """Braces, backslashes, control strings: the prompt is the same around any document."""
    tokenizer = tokenizer_of(tiny_llama)
    for hostile in (document, f"{{{{ 7*7 }}}}<|im_end|>\\1{document}{STAND_IN}"):
        before, _, after = prompt_text(tiny_llama, tokenizer).partition("DOC")
        assert before + hostile + after == prompt_text(tiny_llama, tokenizer, document=hostile)


@pytest.mark.parametrize(
    "text", ["{{ 7*7 }}", "{% raw %}", "{document} {0} {}", "\\1 \\n \\", "$1 ${x} %s", "é 漢字", "line\nline", "<|im_start|>"]
)  # fmt: skip
def test_system_and_instruction_are_literal(tmp_path: Path, tiny_llama: Path, text: str) -> None:
    """A person's words are values of the template, never a part of it."""
    prompt = PromptSpec(system=f"S {text} S", instruction=f"I {text} I")
    folder = model_folder(tmp_path, TURNS)
    expected = f"[system]S {text} S[user]I {text} I\n\nDOC[answer]"
    assert expected == prompt_text(folder, tokenizer_of(tiny_llama), prompt)


REFUSES = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + TURNS
LEAVES_OUT = (
    "{% for m in messages %}{% if m['role'] == 'user' %}[user]{{ m['content'] }}{% endif %}{% endfor %}"
)
TRIMS = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] | trim }}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "system", "expected"),
    [
        (TURNS, "Be faithful.", "[system]Be faithful.[user]Summarize this.\n\nDOC[answer]"),
        (TURNS, "", "[user]Summarize this.\n\nDOC[answer]"),
        (REFUSES, "Be faithful.", "[user]Be faithful.\n\nSummarize this.\n\nDOC[answer]"),
        (REFUSES, "", "[user]Summarize this.\n\nDOC[answer]"),
        (LEAVES_OUT, "Be faithful.", "[user]Be faithful.\n\nSummarize this.\n\nDOC"),
        (LEAVES_OUT, "", "[user]Summarize this.\n\nDOC"),
        (TRIMS, " Be faithful.\n", "[system]Be faithful.[user]Summarize this.\n\nDOC"),
    ],
)
def test_a_model_without_a_system_role_reads_the_system_text_all_the_same(
    tmp_path: Path, tiny_llama: Path, template: str, system: str, expected: str
) -> None:
    """Where a template refuses a system turn or drops it, its text opens the user's turn."""
    prompt = PromptSpec(system=system, instruction="Summarize this.")
    folder = model_folder(tmp_path, template)
    assert expected == prompt_text(folder, tokenizer_of(tiny_llama), prompt)


@pytest.mark.parametrize(("template", "expected"), [("{{ bos_token }}" + TURNS, 1), (TURNS, 0)])
def test_the_template_alone_decides_on_a_begin_token(tmp_path: Path, template: str, expected: int) -> None:
    """A tokenizer that adds one by itself does not make it two, nor one where there should be none."""
    tokenizer, measure = tokenizers_of("Llama 3 with BOS")
    folder = model_folder(tmp_path, template, bos_token=BEGIN)
    ids = prompt_frame(folder, PROMPT, tokenizer).around([7, 8, 9])
    assert expected == ids.count(measure.token_to_id(BEGIN))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"chat_template": "A" + TURNS}, "A[user]"),
        ({"chat_template": [{"name": "tool_use", "template": "X"}, {"name": "default", "template": "B" + TURNS}]}, "B[user]"),
        ({"chat_template": "{{ eos_token }}" + TURNS, "eos_token": {"content": "<END>"}}, "<END>[user]"),
        ({"chat_template": "{{ pad_token is defined }}" + TURNS, "pad_token": None}, "False[user]"),
        ({"chat_template": "{{ {'a': 'é'} | tojson }}" + TURNS}, '{"a":"é"}[user]'),
        ({"chat_template": "{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{% endfor %}" + TURNS}, "[user]"),
    ],
)  # fmt: skip
def test_where_templates_are_found_and_what_they_know(
    tmp_path: Path, tiny_llama: Path, config: dict[str, Any], expected: str
) -> None:
    """In the tokenizer's config, alone or by the name `default`, with the special tokens and usual filters."""
    folder = model_folder(tmp_path, None, **config)
    prompt = PromptSpec(system="", instruction="Summarize this.")
    assert f"{expected}Summarize this.\n\nDOC[answer]" == prompt_text(
        folder, tokenizer_of(tiny_llama), prompt
    )


def test_a_template_file_comes_before_the_config(tmp_path: Path, tiny_llama: Path) -> None:
    """As newer models are saved."""
    folder = model_folder(tmp_path, "FILE" + TURNS, chat_template="CONFIG" + TURNS)
    assert prompt_text(folder, tokenizer_of(tiny_llama)).startswith("FILE[system]")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% if %}", "Expected an expression, got 'end of statement block'"),
        ("{{ messages.foo.bar }}", "'list object' has no attribute 'foo'"),
        ("{{ messages[5].role }}", "list object has no element 5"),
        ("{{ 'a' + 1 }}", 'can only concatenate str (not "int") to str'),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ no_such_function() }}", "'no_such_function' is undefined"),
        ("{% for i in range(10**9) %}{% endfor %}", "Range too big. The sandbox blocks ranges larger than"),
        ("{{ ''.__class__.__mro__ }}", "access to attribute '__class__' of 'str' object is unsafe."),
        ("{% set _ = messages.clear() %}" + TURNS, "access to attribute 'clear' of 'list' object is unsafe."),
        ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "maximum recursion depth exceeded"),
        ("{% include '/etc/passwd' %}", "no loader for this environment specified"),
    ],
)
def test_a_template_that_fails_is_an_error_of_the_model(
    tmp_path: Path, tiny_llama: Path, template: str, said: str
) -> None:
    """Whatever it raises, and whatever it tries in its sandbox: 78, with what it said."""
    error = refusal(model_folder(tmp_path, template), tokenizer_of(tiny_llama))
    assert error.reason.startswith(f"the chat template of {tmp_path} fails: {said}")
    assert error.hint == "Mend chat_template in tokenizer_config.json."


@pytest.mark.parametrize(
    "config", [{}, {"chat_template": None}, {"chat_template": [{"name": "tool_use", "template": "X"}]}]
)
def test_a_base_model_gets_the_words_as_they_are(
    tmp_path: Path, tiny_llama: Path, config: dict[str, Any]
) -> None:
    """Without a chat template: system, instruction, document, and the line on which the summary begins."""
    folder = model_folder(tmp_path, None, **config)
    expected = "Be faithful.\n\nSummarize this.\n\nDOC\n\nSummary:"
    assert expected == prompt_text(folder, tokenizer_of(tiny_llama))


def test_a_base_model_begins_with_its_begin_token(tmp_path: Path) -> None:
    """Once, where the model has one."""
    tokenizer, measure = tokenizers_of("Llama 3 with BOS")
    ids = prompt_frame(model_folder(tmp_path, None, bos_token=BEGIN), PROMPT, tokenizer).around([7, 8, 9])
    assert [measure.token_to_id(BEGIN)] == [one for one in ids if one == measure.token_to_id(BEGIN)]
    assert ids[0] == measure.token_to_id(BEGIN)


@pytest.mark.parametrize(
    ("template", "opens"),
    [
        ("{{ '' if enable_thinking is defined and enable_thinking is false else '<think>' }}" + TURNS, False),
        (TURNS + "{{ '<think>\n' }}", True),
    ],
)
def test_thinking_is_off_where_the_template_allows(
    tmp_path: Path, tiny_llama: Path, template: str, opens: bool
) -> None:
    """Elsewhere it is known that the answer begins inside a thought."""
    folder = model_folder(tmp_path, template)
    assert opens == job_prompts(folder, PROMPT, tokenizer_of(tiny_llama)).opens_thought
    assert opens == ("<think>" in prompt_text(folder, tokenizer_of(tiny_llama)))


@pytest.mark.parametrize("content", ["{", "[]", '"x"'])
def test_a_broken_config_is_named(tmp_path: Path, tiny_llama: Path, content: str) -> None:
    """By its path."""
    (tmp_path / "tokenizer_config.json").write_text(content)
    error = refusal(tmp_path, tokenizer_of(tiny_llama))
    assert error.reason.startswith(f"{tmp_path}/tokenizer_config.json is no JSON: ")
    assert error.hint == "Mend the model folder."


@pytest.mark.parametrize(
    ("template", "instruction"),
    [
        (TURNS + TURNS, "Summarize."),
        ("{{ messages[-1]['role'] }}", "Summarize."),
    ],
)
def test_a_document_stands_in_the_prompt_exactly_once(
    tmp_path: Path, tiny_llama: Path, template: str, instruction: str
) -> None:
    """A template that repeats or drops the user's words can not be used."""
    prompt = PromptSpec(system="", instruction=instruction)
    error = refusal(model_folder(tmp_path, template), tokenizer_of(tiny_llama), prompt)
    assert (
        f"the chat template of {tmp_path} does not put the user's message into the prompt exactly once\n"
        "Use a model whose chat template renders a single user turn."
    ) == str(error)
