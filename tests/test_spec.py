"""Job specs: what is refused and how it is said, and which fields make another job."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchrun import spec as specs
from batchrun.errors import ConfigError, ExitCode
from batchrun.spec import FINGERPRINTED, NEUTRAL, NEUTRAL_OPTIONS, JobSpec

SHIPPED = Path(__file__).parents[1] / "jobs"

OTHER_VALUES: dict[str, Any] = {
    # A value that is not the default, for every field.
    "model": "another/model",
    "name": "another",
    "revision": "v2",
    "prompt.system": "You write verse.",
    "prompt.instruction": "Summarize in one word.",
    "output.max_tokens": 161,
    "output.temperature": 0.7,
    "output.top_p": 0.9,
    "long_documents.policy": "truncate",
    "long_documents.overlap_share": 0.1,
    "columns.id": "key",
    "columns.text": "article",
    "residency.slice_tokens": 64,
    "residency.max_share": 0.25,
    "buckets.edges": (512,),
    "engine.kind": "lead",
    "engine.dtype": "float16",
    "engine.max_model_len": 4096,
    "engine.max_num_batched_tokens": 4096,
    "engine.max_num_seqs": 8,
    "engine.speculation": "ngram",
    "engine.load_seconds": 90,
    "engine.stall_seconds": 60,
    "engine.options": {"speculative_tokens": 4},
}


def field_names(kind: type[msgspec.Struct], where: str = "") -> Iterator[str]:
    """Every field of a struct by its dotted name."""
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from field_names(field.type, f"{where}{field.name}.")
        else:
            yield where + field.name


def changed(spec: JobSpec, name: str, value: Any) -> JobSpec:
    """The spec with another value in one field, whatever its type allows today."""
    outer, _, inner = name.partition(".")
    if inner:
        value = msgspec.structs.replace(getattr(spec, outer), **{inner: value})
    return msgspec.structs.replace(spec, **{outer: value})


def fingerprint_of(spec: JobSpec) -> str:
    """As a job reckons it, with a model whose content is its name and revision."""
    fields = specs.fingerprint_fields(
        spec,
        model_content=f"{spec.model}@{spec.revision}",
        max_model_len=spec.engine.max_model_len or 8192,
    )
    return specs.fingerprint(fields)


def with_options(**options: Any) -> JobSpec:
    return changed(JobSpec(model="m"), "engine.options", options)


def write(folder: Path, text: str, name: str = "summarize.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


ALL_FIELDS = sorted(field_names(JobSpec))


def test_every_field_stands_on_one_side() -> None:
    """A field either makes another job or does not; nobody adds one without saying which."""
    assert sorted([*FINGERPRINTED, *NEUTRAL]) == ALL_FIELDS
    assert sorted(OTHER_VALUES) == ALL_FIELDS


@pytest.mark.parametrize("name", ALL_FIELDS)
def test_the_fingerprint_covers_what_can_change_a_summary(name: str) -> None:
    """Another value of a fingerprinted field is another job, of a neutral one the same."""
    spec = changed(JobSpec(model="m"), "output.temperature", 0.5)
    other = changed(spec, name, OTHER_VALUES[name])
    assert specs.flat_fields(spec)[name] != specs.flat_fields(other)[name]
    assert (name in NEUTRAL) == (fingerprint_of(spec) == fingerprint_of(other))


def test_slices_make_another_job_where_outputs_are_drawn() -> None:
    """Each slice has a seed of its own; without a temperature the summary is the same in any slices."""
    greedy = JobSpec(model="m")
    assert fingerprint_of(greedy) == fingerprint_of(changed(greedy, "residency.slice_tokens", 64))


@pytest.mark.parametrize("option", sorted(NEUTRAL_OPTIONS))
def test_neutral_engine_options_make_no_other_job(option: str) -> None:
    """How fast an engine runs decides nothing about its summaries."""
    assert fingerprint_of(JobSpec(model="m")) == fingerprint_of(with_options(**{option: 0.5}))


def test_the_order_of_options_does_not_matter() -> None:
    """The canonical JSON sorts keys at every depth."""
    one = with_options(a=1, b={"x": [1, 2], "y": 2})
    two = with_options(b={"y": 2, "x": [1, 2]}, a=1)
    three = with_options(a=1, b={"x": [2, 1], "y": 2})
    assert fingerprint_of(one) == fingerprint_of(two)
    assert fingerprint_of(one) != fingerprint_of(three)


def test_the_fingerprint_never_changes_unnoticed() -> None:
    """With another fingerprint for the same spec, no job finds its finished summaries any more."""
    spec = msgspec.convert(
        {
            "model": "org/model",
            "prompt": {"system": "S", "instruction": "I"},
            "output": {"max_tokens": 10, "temperature": 0.5, "top_p": 0.9},
            "engine": {"kind": "lead", "dtype": "auto", "options": {"b": 1, "a": [True, None, "é"]}},
        },
        JobSpec,
    )
    fields = specs.fingerprint_fields(spec, model_content="org/model@1", max_model_len=2048)
    assert fields == {
        "model": "org/model@1",
        "prompt.system": "S",
        "prompt.instruction": "I",
        "output.max_tokens": 10,
        "output.temperature": 0.5,
        "output.top_p": 0.9,
        "long_documents.policy": "map_reduce",
        "long_documents.overlap_share": 0.05,
        "residency.slice_tokens": 512,
        "engine.kind": "lead",
        "engine.dtype": "auto",
        "engine.max_model_len": 2048,
        "engine.options": {"a": [True, None, "é"], "b": 1},
        "recipe": 3,
    }
    assert specs.fingerprint(fields) == "0dc63f9e7fdf8d7f5432b9298cb78316"
    assert specs.job_id("news", specs.fingerprint(fields)) == "news-0dc63f9e"


@pytest.mark.parametrize("name", sorted(specs.LATER))
def test_a_later_field_leaves_the_jobs_before_it_alone(name: str) -> None:
    """At its default it is not in the fingerprint, so that finished summaries are found again."""
    spec = JobSpec(model="m")
    assert specs.LATER[name] == specs.flat_fields(spec)[name]
    fields = specs.fingerprint_fields(spec, model_content="m@1", max_model_len=8192)
    assert name not in fields
    other = changed(spec, name, OTHER_VALUES[name])
    assert (
        OTHER_VALUES[name] == specs.fingerprint_fields(other, model_content="m@1", max_model_len=8192)[name]
    )


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("modl = 'm'", "unknown key 'modl'", "Did you mean 'model'?"),
        ("model = 'm'\n[otput]\n", "unknown key 'otput'", "Did you mean 'output'?"),
        ("model = 'm'\noutput.max_token = 3", "unknown key 'output.max_token'", "Did you mean 'max_tokens'?"),
        (
            "model = 'm'\n[engine]\ngpu_memory_utilization = 0.9",
            "unknown key 'engine.gpu_memory_utilization'",
            "Known here: dtype, kind, load_seconds, max_model_len, max_num_batched_tokens, max_num_seqs, options, speculation, stall_seconds.",
        ),
        ("", "Object missing required field `model`", "Mend that value in the spec."),
        ("model = ''", "Expected `str` of length >= 1 - at `$.model`", "Mend that value in the spec."),
        ("model = 7", "Expected `str`, got `int` - at `$.model`", "Mend that value in the spec."),
        ("model = 'm'\nprompt = 'p'", "Expected `object`, got `str` - at `$.prompt`", "Mend that value in the spec."),
        (
            "model = 'm'\nprompt.instruction = ''",
            "Expected `str` of length >= 1 - at `$.prompt.instruction`",
            "Mend that value in the spec.",
        ),
        (
            "model = 'm'\noutput.max_tokens = 0",
            "Expected `int` >= 1 - at `$.output.max_tokens`",
            "Mend that value in the spec.",
        ),
        (
            "model = 'm'\noutput.max_tokens = true",
            "Expected `int`, got `bool` - at `$.output.max_tokens`",
            "Mend that value in the spec.",
        ),
        (
            "model = 'm'\noutput.temperature = -0.1",
            "Expected `float` >= 0.0 - at `$.output.temperature`",
            "Mend that value in the spec.",
        ),
        (
            "model = 'm'\noutput.temperature = nan",
            "Expected `float` >= 0.0 - at `$.output.temperature`",
            "Mend that value in the spec.",
        ),
        (
            "model = 'm'\nengine.kind = 'cuda'",
            "Invalid enum value 'cuda' - at `$.engine.kind`",
            "Mend that value in the spec.",
        ),
        (
            "model = 'm'\nbuckets.edges = [0, 10]",
            "Expected `int` >= 1 - at `$.buckets.edges[0]`",
            "Mend that value in the spec.",
        ),
        ("model = 'm'\nbuckets.edges = [20, 10]", "buckets.edges [20, 10] do not rise", "Sort them, each once."),
        ("model = 'm'\nbuckets.edges = [10, 10]", "buckets.edges [10, 10] do not rise", "Sort them, each once."),
    ],
)  # fmt: skip
def test_a_wrong_spec_is_refused_with_what_to_do(tmp_path: Path, text: str, reason: str, hint: str) -> None:
    """The message names the file, the key and the next action; the exit code is 78."""
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        specs.load_spec(path)
    assert f"{path}: {reason}\n{hint}" == str(caught.value)
    assert ExitCode.CONFIG == caught.value.exit_code == 78


def test_bad_toml_is_refused_with_its_place(tmp_path: Path) -> None:
    """A file that is no TOML is named with the line."""
    path = write(tmp_path, "model = 'm'\n[output\n")
    with pytest.raises(ConfigError) as caught:
        specs.load_spec(path)
    assert f"{path} is not readable as TOML: " in caught.value.reason
    assert "at line 2" in caught.value.reason
    assert caught.value.hint == "Mend the file."


@pytest.mark.parametrize("content", [b"model = '\xff'", "model = 'm'".encode("utf-16")])
def test_a_spec_in_another_encoding_is_refused(tmp_path: Path, content: bytes) -> None:
    """Specs are UTF-8; others are named, not guessed."""
    path = tmp_path / "summarize.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="is not readable as TOML: 'utf-8' codec can't decode"):
        specs.load_spec(path)


def test_a_missing_spec_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is shown absolute, with the command that makes starter specs."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        specs.load_spec(Path("jobs/none.toml"))
    assert (
        f"there is no job spec {tmp_path}/jobs/none.toml\n"
        "Give one with --job, or make a workspace with starter specs: batchrun init"
    ) == str(caught.value)


def test_a_folder_is_no_spec(tmp_path: Path) -> None:
    """A path that is there and can not be read is an error of the same kind."""
    with pytest.raises(ConfigError, match="is not readable as TOML"):
        specs.load_spec(tmp_path)


@pytest.mark.parametrize(
    ("text", "file", "expected"),
    [
        ("model = 'm'", "nightly.toml", "nightly"),
        ("model = 'm'", "v1.2_x-y.toml", "v1.2_x-y"),
        ("model = 'm'\nname = 'given'", "nightly.toml", "given"),
        ("model = 'm'\nname = 'given'", "not a name.toml", "given"),
    ],
)
def test_the_name_is_given_or_the_stem(tmp_path: Path, text: str, file: str, expected: str) -> None:
    """Without `name` the file's stem names the job."""
    assert expected == specs.load_spec(write(tmp_path, text, file)).name


@pytest.mark.parametrize("name", ["", "a b", "a/b", "..", ".hidden", "-x", "été", "a\n", "a\0"])
def test_a_name_that_can_not_be_part_of_a_path_is_refused(name: str) -> None:
    """Names stand in folder names: letters, digits, '.', '_' and '-', beginning with letter or digit."""
    with pytest.raises(ConfigError) as caught:
        specs.renamed(JobSpec(model="m"), name)
    assert caught.value.reason.startswith(f"name {name!r} can not be used: ")
    assert caught.value.hint == "Use letters, digits, '.', '_' and '-'."


def test_a_stem_that_is_no_name_is_called_by_it(tmp_path: Path) -> None:
    """The message speaks of the name, which the spec does not hold."""
    with pytest.raises(ConfigError, match="name 'my job' can not be used"):
        specs.load_spec(write(tmp_path, "model = 'm'", "my job.toml"))


def test_renaming_changes_the_name_alone() -> None:
    """Options keep their types, and the job is the same but for its name."""
    spec = with_options(a=(1, 2), b=b"bytes")
    renamed = specs.renamed(spec, "other")
    assert changed(spec, "name", "other") == renamed
    assert fingerprint_of(spec) == fingerprint_of(renamed)


def test_a_full_spec_is_read_as_written(tmp_path: Path) -> None:
    """Every key arrives; engine options are passed through as they are."""
    text = """
    model = "org/model"
    revision = "v1"
    name = "full"
    [prompt]
    system = ""
    instruction = "Say {it} \\\\ so."
    [output]
    max_tokens = 5
    temperature = 1
    top_p = 0.5
    [long_documents]
    policy = "fail"
    overlap_share = 0
    [columns]
    id = "key"
    text = "body"
    [residency]
    slice_tokens = 64
    max_share = 1
    [buckets]
    edges = []
    [engine]
    kind = "lead"
    dtype = "bfloat16"
    max_model_len = 100
    max_num_batched_tokens = 200
    max_num_seqs = 3
    speculation = "ngram"
    load_seconds = 90
    stall_seconds = 60
    [engine.options]
    nested = { anything = [1, "two"] }
    """
    expected = {
        "model": "org/model",
        "revision": "v1",
        "name": "full",
        "prompt.system": "",
        "prompt.instruction": "Say {it} \\ so.",
        "output.max_tokens": 5,
        "output.temperature": 1.0,
        "output.top_p": 0.5,
        "long_documents.policy": "fail",
        "long_documents.overlap_share": 0.0,
        "columns.id": "key",
        "columns.text": "body",
        "residency.slice_tokens": 64,
        "residency.max_share": 1.0,
        "buckets.edges": (),
        "engine.kind": "lead",
        "engine.dtype": "bfloat16",
        "engine.max_model_len": 100,
        "engine.max_num_batched_tokens": 200,
        "engine.max_num_seqs": 3,
        "engine.speculation": "ngram",
        "engine.load_seconds": 90,
        "engine.stall_seconds": 60,
        "engine.options": {"nested": {"anything": [1, "two"]}},
    }
    assert expected == specs.flat_fields(specs.load_spec(write(tmp_path, text)))


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_specs_load(path: Path) -> None:
    """The starter specs are valid, and have their files' names."""
    assert path.stem == specs.load_spec(path).name


def test_the_default_spec_is_shipped() -> None:
    """`submit` without `--job` takes `jobs/summarize.toml`."""
    assert (SHIPPED / "summarize.toml").is_file()
