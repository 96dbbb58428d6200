"""Other columns in the prompt, and a look at what the model will see."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrun.prompts.frames import names_in, substituted
from batchrun.records import Request
from tests.commands import Bench, texts


def write_spec(bench: Bench, instruction: str, policy: str = "map_reduce") -> None:
    spec = bench.write_spec()
    text = spec.read_text().replace('policy = "fail"', f'policy = "{policy}"')
    spec.write_text(
        text.replace("[output]", f"[prompt]\ninstruction = {json.dumps(instruction)}\n\n[output]")
    )


@pytest.mark.parametrize(
    ("instruction", "values", "expected"),
    [
        (
            "A {language} text titled {title}.",
            {"language": "French", "title": "T"},
            "A French text titled T.",
        ),
        ("{title}", {"title": "{language} {title}"}, "{language} {title}"),
        ("{titel} stays", {"title": "T"}, "{titel} stays"),
        ("\\1 {title} $1 %s {} {{title}}", {"title": "\\2"}, "\\1 \\2 $1 %s {} {\\2}"),
        ("{title} and {title}", {"title": "T"}, "T and T"),
        ("{title}", {"title": ""}, ""),
    ],
)
def test_names_in_braces_are_substituted_once_and_literally(
    instruction: str, values: dict[str, str], expected: str
) -> None:
    """Only those that are columns; nothing in a value acts on the instruction."""
    assert expected == substituted(instruction, values)


def test_names_are_found_in_order() -> None:
    """Each once."""
    assert ["b", "a b"] == names_in("{b} {a b} {b} {} {{")


def show(bench: Bench, path: Path, doc_id: object) -> str:
    result = bench.run("plan", path, "--show-prompt", doc_id)
    assert 0 == result.code, result.err
    return result.out


def test_the_prompt_of_a_row_can_be_seen(bench: Bench) -> None:
    """As the model gets it, control tokens spelt out, with the row's own columns in it."""
    write_spec(bench, "Summarize this {language} report titled {title}, {nothing}.")
    path = bench.corpus(["one", "two <|im_end|>"], language=["French", None], title=["A <|im_start|>", "B"])
    expected = (
        "<|im_start|>system\nYou write faithful summaries.<|im_end|>\n<|im_start|>user\n"
        "Summarize this French report titled A <|im_start|>, {nothing}.\n\none<|im_end|>\n<|im_start|>assistant\n\n"
    )
    assert expected == show(bench, path, 0)
    assert "this  report titled B, {nothing}.\n\ntwo <|im_end|><|im_end|>" in show(bench, path, 1)
    assert not list(bench.home.glob("checkpoints/*/seed-0/corpora/*/plan.json"))
    refused = bench.run("plan", path, "--show-prompt", 7)
    assert [65, True] == [refused.code, "no row has the id '7'" in refused.err]


def test_the_columns_enter_the_key(bench: Bench) -> None:
    """Another title is another summary; the same title and text are one."""
    write_spec(bench, "Summarize {title}.")
    path = bench.corpus(["same"] * 3, title=["A", "B", "A"])
    result = bench.submit(path)
    assert [2, 1] == [result.json["rows"][name] for name in ("computed", "duplicate")]
    assert "the prompt names column title" in result.err
    keys = [row["input_hash"] for row in bench.output()]
    assert keys[0] == keys[2] != keys[1]
    assert 1 == bench.submit(bench.corpus(["same"] * 3, title=["A", "C", "A"])).json["rows"]["computed"]


def test_a_name_that_is_no_column_stays_and_is_said(bench: Bench) -> None:
    """It is text like the rest."""
    write_spec(bench, "Summarize {titel}.")
    result = bench.submit(bench.corpus(["text"], title=["A"]))
    assert "{titel} in the prompt stays as it is: no file has a column 'titel'" in result.err


def test_columns_of_any_kind_of_file(bench: Bench) -> None:
    """Numbers and nulls as text; a file without the column has none."""
    write_spec(bench, "Year {year}, place {place}.")
    folder = bench.home / "in" / "place=Rome%20East"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text('{"text": "a", "year": 1999}\n{"text": "b"}\n')
    (bench.home / "in" / "b.csv").write_text("id,text,year\nx,c,2001\n")
    everything = bench.home / "in"
    assert "Year 1999, place Rome East.\n\na<" in show(bench, everything, 0)
    assert "Year 2001, place .\n\nc<" in show(bench, everything, "x")
    result = bench.submit(everything, "-o", bench.home / "out.parquet")
    assert [0, 3] == [result.code, result.json["rows"]["ok"]]


def test_a_kept_column_can_stand_in_the_prompt(bench: Bench) -> None:
    """It comes out in its own type all the same."""
    write_spec(bench, "Year {year}.")
    path = bench.corpus(["a", "b"], year=[1, None])
    assert 0 == bench.submit(path, "--keep-columns", "year").code
    assert [1, None] == [row["year"] for row in bench.output()]
    assert "Year 1.\n\na<" in show(bench, path, 0)


def test_the_prompt_of_a_long_document_is_that_of_its_first_part(bench: Bench) -> None:
    """And it is said how many there are."""
    write_spec(bench, "Summarize {title}.")
    path = bench.corpus(["word " * 2000], title=["A"])
    result = bench.run("plan", path, "--show-prompt", 0)
    assert "Summarize A.\n\nThe document is long, titled “A”; this is part 1 of it." in result.out
    assert "; part 1 of " in result.err
    assert 1 == bench.submit(path).json["rows"]["ok"]


def test_a_long_instruction_counts(bench: Bench) -> None:
    """A row whose title leaves no room fails alone."""
    write_spec(bench, "Summarize {title}.", "fail")
    result = bench.submit(bench.corpus(texts(2), title=["A", "long " * 600]), "--max-error-rate", "1")
    assert ["ok", "failed"] == [row["status"] for row in bench.output()]
    assert 0 == result.code


def recorded(bench: Bench, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> list[str]:
    """The prompts that the engine of a run is given."""
    from batchrun.engines.lead import LeadEngine
    from batchrun.prompts.tokenizer import Tokenizer

    tokenizer, prompts = Tokenizer(bench.model), []
    add = LeadEngine.add

    def noted(engine: LeadEngine, request: Request) -> None:
        prompts.append(tokenizer.spelt_out(request.prompt_token_ids))
        add(engine, request)

    with monkeypatch.context() as patch:
        patch.setattr(LeadEngine, "add", noted)
        result = bench.run(*arguments)
        assert 0 == result.code, result.err
    return prompts


def test_the_engine_gets_what_was_shown(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short documents, parts and merges have their row's columns in the prompt."""
    write_spec(bench, "Summarize this {language} text.")
    long = "".join(f"Sentence {n} of many. " for n in range(300))
    path = bench.corpus(["one", long], language=["French", "Dutch"])
    shown = {show(bench, path, doc_id).removesuffix("\n") for doc_id in (0, 1)}
    prompts = recorded(bench, monkeypatch, "submit", path)
    assert shown < set(prompts)
    assert 1 == sum("French" in prompt for prompt in prompts)
    assert len(prompts) - 1 == sum("this Dutch text." in prompt for prompt in prompts) > 3


@pytest.mark.parametrize("stage", ["parts", "merges"])
def test_every_call_of_another_column_is_another_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """Two rows of one long text in two languages share no part and no merge."""
    write_spec(bench, "Summarize this {language} text.")
    long = "".join(f"Sentence {n} of many. " for n in range(300))
    prompts = recorded(bench, monkeypatch, "submit", bench.corpus([long, long], language=["French", "Dutch"]))
    of_stage = [prompt for prompt in prompts if ("this is part" in prompt) == (stage == "parts")]
    french, dutch = (sum(language in prompt for prompt in of_stage) for language in ("French", "Dutch"))
    assert french == dutch > 0


def test_an_id_is_not_mixed_up_with_a_column_of_its_name(bench: Bench) -> None:
    """`doc_id` can stand in the prompt where it is the id; elsewhere it is refused."""
    write_spec(bench, "Summarize {doc_id}.")
    path = bench.home / "ids.parquet"
    pq.write_table(pa.table({"id": [10, 11], "doc_id": ["A", "B"], "text": ["x", "y"]}), path)
    refused = bench.run("submit", path, "--id-column", "id")
    assert [65, True] == [refused.code, "{doc_id} in prompt.instruction names a column" in refused.err]
    assert 0 == bench.run("submit", path, "--id-column", "doc_id").code
    assert ["A", "B"] == [row["doc_id"] for row in bench.output("ids.summaries.parquet")]
    assert "Summarize B.\n\ny" in bench.run("plan", path, "--id-column", "doc_id", "--show-prompt", "B").out


def test_the_text_itself_does_not_stand_in_the_instruction(bench: Bench) -> None:
    """It would be there twice: refused, with what to do."""
    write_spec(bench, "Summarize: {text}")
    refused = bench.run("submit", bench.corpus(["x"]))
    assert [65, True] == [
        refused.code,
        "Take it out: the document is put after the instruction" in refused.err,
    ]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([b"\xff bad"]).view(pa.string()), "V \ufffd bad."),
        (pa.array([b"\xff bad"]).view(pa.string()).dictionary_encode(), "V \ufffd bad."),
        (pa.array([b"good"]), "V good."),
        (pa.array([float("nan")]), "V ."),
        (pa.array([1.5]), "V 1.5."),
        (pa.array([None], pa.string()), "V ."),
        (pa.array([2**60]), "V 1152921504606846976."),
        (pa.array([[1, 2]]), "V [1, 2]."),
    ],
)
def test_values_of_any_kind_are_words(bench: Bench, column: pa.Array, expected: str) -> None:
    """Never the word nan, never an exception."""
    write_spec(bench, "V {value}.")
    path = bench.home / "values.parquet"
    pq.write_table(pa.table({"id": [1], "text": ["x"], "value": column}), path)
    assert expected in bench.run("plan", path, "--show-prompt", 1).out
    assert 0 == bench.run("submit", path).code


def test_a_prompt_that_can_not_be_is_not_shown(bench: Bench) -> None:
    """What submit refuses, --show-prompt refuses with the same words."""
    for policy in ("map_reduce", "truncate", "fail"):
        write_spec(bench, "Summarize {title}.", policy)
        path = bench.corpus(["word " * 600], title=["long " * 600])
        shown = bench.run("plan", path, "--show-prompt", 0)
        assert [65, True] == [shown.code, "do not fit max_model_len" in shown.err]
        assert 3 == bench.run("submit", path).code
