"""A model is what its files hold: found as a folder or by hub id, and the same until their bytes change."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from batchrun.errors import ConfigError, ExitCode
from batchrun.model import Model, find_model

FIRST, SECOND = "1" * 40, "2" * 40
WEIGHTS = "model.safetensors"


def make_model(folder: Path) -> Path:
    """A folder that looks like a model."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 2048}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / WEIGHTS).write_bytes(b"weights of a model")
    return folder


def find(name: str | Path, workspace: Path, revision: str = "main") -> Model:
    return find_model(str(name), revision, workspace, workspace / "checkpoints" / "models.json")


def refusal(name: str | Path, workspace: Path, revision: str = "main") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        find(name, workspace, revision)
    assert ExitCode.CONFIG == caught.value.exit_code == 78
    return caught.value


def rewrite_at_the_same_time(path: Path, content: bytes) -> None:
    """Other bytes under the same name, with the time set back, as a copy that preserves times does."""
    stat = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


CHANGES: dict[str, tuple[Callable[[Path], object], bool]] = {
    # what is done to a model folder, and whether it is then another model
    "other bytes of the same size at the same time": (
        lambda folder: rewrite_at_the_same_time(folder / WEIGHTS, b"WEIGHTS of a model"),
        True,
    ),
    "longer weights": (lambda folder: (folder / WEIGHTS).write_bytes(b"weights of a model."), True),
    "another chat template": (lambda folder: (folder / "chat_template.jinja").write_text("{}"), True),
    "a file renamed": (lambda folder: (folder / WEIGHTS).rename(folder / "other.safetensors"), True),
    "a file moved down": (lambda folder: shutil.move(folder / WEIGHTS, _made(folder / "below")), True),
    "a file gone": (lambda folder: (folder / "tokenizer.json").unlink(), True),
    "touched": (lambda folder: (folder / WEIGHTS).touch(), False),
    "a hidden file": (lambda folder: (folder / ".gitattributes").write_text("x"), False),
    "a hidden folder": (lambda folder: (_made(folder / ".cache") / "x").write_text("x"), False),
    "an empty folder": (lambda folder: _made(folder / "empty"), False),
}


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize("change", CHANGES)
def test_a_folder_is_another_model_when_its_files_change(tmp_path: Path, change: str) -> None:
    """Names and bytes of files make the content, not times, places and hidden files."""
    folder = make_model(tmp_path / "model")
    before = find(folder, tmp_path).content
    apply, is_another = CHANGES[change]
    apply(folder)
    assert is_another == (before != find(folder, tmp_path).content)


def test_a_copied_folder_is_the_same_model(tmp_path: Path) -> None:
    """The content does not depend on where the folder lies."""
    folder = make_model(tmp_path / "model")
    shutil.copytree(folder, tmp_path / "elsewhere")
    assert find(folder, tmp_path).content == find(tmp_path / "elsewhere", tmp_path).content


def test_the_content_never_changes_unnoticed(tmp_path: Path) -> None:
    """It is part of the fingerprint: another hash of the same files would orphan finished summaries."""
    expected = "xxh3:121ae337ec023c1303dd58b4c5b9f7f9"
    assert expected == find(make_model(tmp_path / "model"), tmp_path).content


def test_weights_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes are kept by size and times; a second look reads no file but the config."""
    folder = make_model(tmp_path / "model")
    before = find(folder, tmp_path).content
    opened: list[str] = []
    original = Path.open

    def recording(path: Path, *arguments: Any, **options: Any) -> Any:
        opened.append(path.name)
        return original(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", recording)
    assert before == find(folder, tmp_path).content
    assert {"config.json", "models.json"} == set(opened)


@pytest.mark.parametrize("content", [b"", b"no json", b'{"hashes": 7}'])
def test_a_spoilt_record_of_hashes_is_made_anew(tmp_path: Path, content: bytes) -> None:
    """What `models.json` remembers of folders can always be computed again."""
    folder = make_model(tmp_path / "model")
    expected = find(folder, tmp_path).content
    (tmp_path / "checkpoints" / "models.json").write_bytes(content)
    assert expected == find(folder, tmp_path).content


def test_a_relative_folder_is_looked_for_from_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where cron happens to stand does not matter."""
    folder = make_model(tmp_path / "models" / "small")
    monkeypatch.chdir("/")
    assert folder == find("models/small", tmp_path).folder


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a shell, since specs are written by people."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = make_model(tmp_path / "home" / "model")
    assert folder == find("~/model", tmp_path).folder


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (None, "config.json: [Errno 2] No such file or directory"),
        ("[]", "config.json: Expected `object`, got `array`"),
        ("{", "config.json: Input data was truncated"),
    ],
)
def test_a_folder_without_a_config_is_no_model(tmp_path: Path, config: str | None, said: str) -> None:
    """Said with the folder and what belongs there, before gigabytes are hashed."""
    folder = make_model(tmp_path / "model")
    (folder / "config.json").unlink()
    if config is not None:
        (folder / "config.json").write_text(config)
    error = refusal(folder, tmp_path)
    assert error.reason.startswith(f"{folder} is no model folder: {said}")
    assert error.hint == "Set model in the spec to a folder with config.json, tokenizer.json and weights."
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize(
    ("config", "asked", "expected"),
    [
        ({"max_position_embeddings": 2048}, None, 2048),
        ({"max_position_embeddings": 2048}, 1024, 1024),
        ({"max_position_embeddings": 2048}, 2048, 2048),
        ({"max_position_embeddings": 131072}, None, 8192),
        ({"max_position_embeddings": 131072}, 100000, 100000),
        ({"text_config": {"max_position_embeddings": 4096}}, None, 4096),
        ({"max_position_embeddings": None, "text_config": {"max_position_embeddings": 4096}}, None, 4096),
        ({"text_config": None}, None, 8192),
        ({}, None, 8192),
        ({}, 100000, 100000),
    ],
)
def test_max_model_len(config: dict[str, Any], asked: int | None, expected: int) -> None:
    """As asked; else what the model reads, at most 8,192: a longer context costs memory that few need."""
    assert expected == Model(name="m", folder=Path("m"), content="c", config=config).max_model_len(asked)


def test_more_than_the_model_reads_is_refused() -> None:
    """The message holds both numbers."""
    model = Model(name="org/m", folder=Path("m"), content="c", config={"max_position_embeddings": 2048})
    with pytest.raises(ConfigError) as caught:
        model.max_model_len(2049)
    assert str(caught.value) == (
        "engine.max_model_len is 2,049, but org/m reads at most 2,048 tokens\n"
        "Set engine.max_model_len to 2048 or less."
    )


class HubCache:
    """The hub's cache folder on a machine that can not reach the hub."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def publish(self, name: str, commit: str, revision: str = "main") -> Path:
        """A downloaded snapshot that `revision` points at."""
        repository = self.folder / f"models--{name.replace('/', '--')}"
        snapshot = make_model(repository / "snapshots" / commit)
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / revision).write_text(commit)
        return snapshot


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HubCache:
    """The constants are what HF_HOME and HF_HUB_OFFLINE set when huggingface_hub is imported."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return HubCache(tmp_path / "hub")


def test_a_cached_hub_model_is_found_without_the_hub(tmp_path: Path, hub: HubCache) -> None:
    """The revision is resolved to a commit, which is its content, and recorded."""
    snapshot = hub.publish("org/name", FIRST)
    model = find("org/name", tmp_path)
    assert (snapshot, f"org/name@{FIRST}") == (model.folder, model.content)
    record = json.loads((tmp_path / "checkpoints" / "models.json").read_text())
    assert record["revisions"] == {"org/name@main": FIRST}


def test_a_revision_stays_where_it_was_first_resolved(tmp_path: Path, hub: HubCache) -> None:
    """A moved branch does not change a job under way; another revision is resolved for itself."""
    first = hub.publish("org/name", FIRST)
    find("org/name", tmp_path)
    second = hub.publish("org/name", SECOND)
    hub.publish("org/name", "3" * 40, "v3")
    assert (first, f"org/name@{FIRST}") == (
        find("org/name", tmp_path).folder,
        find("org/name", tmp_path).content,
    )
    assert f"org/name@{'3' * 40}" == find("org/name", tmp_path, "v3").content
    assert second == find("org/name", tmp_path / "another workspace").folder


def test_a_pinned_model_does_not_ask_the_hub(
    tmp_path: Path, hub: HubCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once resolved, the cache is looked at first, also where the spec names a commit."""
    hub.publish("org/name", FIRST)
    asked: list[bool] = []
    original = huggingface_hub.snapshot_download

    def recording(*arguments: Any, local_files_only: bool, **options: Any) -> Any:
        asked.append(local_files_only)
        return original(*arguments, local_files_only=local_files_only, **options)

    monkeypatch.setattr("huggingface_hub.snapshot_download", recording)
    for revision in ("main", FIRST):
        find("org/name", tmp_path, revision)
        find("org/name", tmp_path, revision)
    assert asked == [False, True, False, True]


@pytest.mark.parametrize(
    ("name", "revision"),
    [("org/other", "main"), ("org/name", "v9"), ("a/b/c", "main"), ("no folder here", "main"), ("~no-such-user/x", "main")],
)  # fmt: skip
def test_a_model_that_can_not_be_had_is_named(
    tmp_path: Path, hub: HubCache, name: str, revision: str
) -> None:
    """Neither a folder, nor cached, nor to be downloaded: 78, and what to do."""
    hub.publish("org/name", FIRST)
    error = refusal(name, tmp_path, revision)
    start = f"model {name!r} (revision {revision!r}) is neither a folder nor to be had from the hub: "
    assert error.reason.startswith(start)
    assert len(error.reason) > len(start)
    assert (
        error.hint
        == "Set model in the spec to a local folder, or download the model once while the hub can be reached."
    )


def test_a_pinned_snapshot_that_is_gone_is_named_by_its_commit(tmp_path: Path, hub: HubCache) -> None:
    """The branch's new commit does not take its place."""
    snapshot = hub.publish("org/name", FIRST)
    find("org/name", tmp_path)
    shutil.rmtree(snapshot)
    hub.publish("org/name", SECOND)
    assert f"(revision {FIRST!r})" in refusal("org/name", tmp_path).reason
