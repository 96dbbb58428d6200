"""A model's files: where they are, and which content they have, without loading them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import xxhash

from batchrun import atomic_file
from batchrun.errors import ConfigError
from batchrun.seal import content_hash, decode, encode

DEFAULT_MAX_MODEL_LEN = 8192
DOWNLOADED = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".gguf"}


class ModelsRecord(msgspec.Struct):
    """`checkpoints/models.json`: hub revisions as first resolved, and content hashes by file stamps."""

    revisions: dict[str, str] = {}
    hashes: dict[str, tuple[int, int, int, int, str]] = {}


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model folder. `content` is what the fingerprint holds: `<id>@<commit>` or `xxh3:<hash of files>`."""

    name: str
    folder: Path
    content: str
    config: dict[str, Any]
    notes: tuple[str, ...] = ()  # on how it was found, for a person

    @property
    def weight_bytes(self) -> int:
        """Of its weights as they lie on disk."""
        return sum(path.stat().st_size for path in self.folder.iterdir() if path.suffix in WEIGHTS)

    @property
    def max_position_embeddings(self) -> int | None:
        text_config = self.config.get("text_config") or {}
        return self.config.get("max_position_embeddings") or text_config.get("max_position_embeddings")

    @property
    def vocabulary_size(self) -> int:
        """The number of token ids that the model knows. Raises ConfigError where its config does not say it."""
        size = self.config.get("vocab_size") or (self.config.get("text_config") or {}).get("vocab_size")
        if not isinstance(size, int) or size < 1:
            raise ConfigError(
                f"{self.folder}/config.json has no vocab_size", "Name another model in the spec."
            )
        return size

    def max_model_len(self, asked: int | None) -> int:
        """The context to run with, in tokens. Raises ConfigError where the model has less than asked."""
        limit = self.max_position_embeddings
        if asked is not None and limit is not None and asked > limit:
            raise ConfigError(
                f"engine.max_model_len is {asked:,}, but {self.name} reads at most {limit:,} tokens",
                f"Set engine.max_model_len to {limit} or less.",
            )
        return asked or min(limit or DEFAULT_MAX_MODEL_LEN, DEFAULT_MAX_MODEL_LEN)


def find_model(name: str, revision: str, base: Path, record: Path) -> Model:
    """Find the model: a folder (relative ones from `base`), or a hub id, pinned at its first use.

    `record` keeps what was resolved. Raises ConfigError where the model can not be had.
    """
    known, notes = _read_record(record)
    before = msgspec.json.encode(known)
    folder = base / os.path.expanduser(name)
    if folder.is_dir():
        config = _read_config(folder)
        content = f"xxh3:{_content_hash(folder, known)}"
    else:
        folder, commit = _from_hub(name, revision, known)
        config = _read_config(folder)
        content = f"{name}@{commit}"
    if notes or msgspec.json.encode(known) != before:
        atomic_file.make_folder(record.parent)
        atomic_file.write_bytes(record, encode(known), "models")
    return Model(name=name, folder=folder, content=content, config=config, notes=notes)


def look_for_model(name: str, revision: str, base: Path, record: Path) -> Model | None:
    """The model as it is on this machine, or None where it has yet to be downloaded. Reads no weights, downloads and
    writes nothing.

    `content` is empty where a folder's files were not hashed as they are. Raises ConfigError for no model folder, no
    hub id, and an id that is not here where HF_HUB_OFFLINE forbids to download it.
    """
    known, _ = _read_record(record)
    folder = base / os.path.expanduser(name)
    if folder.is_dir():
        content = f"xxh3:{_content_hash(folder, known)}" if _is_hashed(folder, known) else ""
    else:
        cached = _cached(name, known.revisions.get(f"{name}@{revision}", revision))
        if cached is None:
            return None
        folder, content = cached, f"{name}@{cached.name}"
    return Model(name=name, folder=folder, content=content, config=_read_config(folder))


def _read_record(record: Path) -> tuple[ModelsRecord, tuple[str, ...]]:
    try:
        return decode(record.read_bytes(), ModelsRecord), ()
    except FileNotFoundError:
        return ModelsRecord(), ()
    except msgspec.MsgspecError as error:
        told = f"{record} is damaged ({error}) and made anew: files of models are hashed, hub revisions resolved again"
        return ModelsRecord(), (told,)


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = msgspec.json.decode(
            (folder / "config.json").read_bytes(), type=dict[str, Any]
        )
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"{folder} is no model folder: config.json: {error}",
            "Set model in the spec to a folder with config.json, tokenizer.json and weights.",
        ) from error
    return config


def _content_hash(folder: Path, known: ModelsRecord) -> str:
    whole = xxhash.xxh3_128()
    for path in _files(folder):
        relative = path.relative_to(folder).as_posix()
        whole.update(f"{relative}\0{_file_hash(path, known)}\0".encode(errors="surrogateescape"))
    return whole.hexdigest()


def _files(folder: Path) -> list[Path]:
    """All but hidden ones, in order."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [
        path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]


def _is_hashed(folder: Path, known: ModelsRecord) -> bool:
    found = ((known.hashes.get(_name(path)), path) for path in _files(folder))
    return all(cached is not None and cached[:4] == _stamp(path) for cached, path in found)


def _name(path: Path) -> str:
    """Machines that share a workspace may each have a copy of a model at the same path: another file."""
    return f"{path.absolute()}:{path.stat().st_ino}"


def _stamp(path: Path) -> tuple[int, int, int, int]:
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _file_hash(path: Path, known: ModelsRecord) -> str:
    """The hash of a file, read again whenever its size or one of its stamps has changed."""
    stamp = _stamp(path)
    cached = known.hashes.get(_name(path))
    if cached is not None and cached[:4] == stamp:
        return cached[4]
    content = content_hash(path)
    known.hashes[_name(path)] = (*stamp, content)
    return content


def _cached(name: str, revision: str) -> Path | None:
    """The folder of a hub id in the hub's cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(name, revision=revision, allow_patterns=DOWNLOADED, local_files_only=True)
        )
    except LocalEntryNotFoundError:
        if os.environ.get("HF_HUB_OFFLINE") == "1":
            raise ConfigError(
                f"model {name!r} (revision {revision!r}) is not on this machine, and HF_HUB_OFFLINE=1 forbids to "
                "download it",
                "Download it without that setting, or set model in the spec to a local folder.",
            ) from None
        return None
    except HFValidationError:
        raise ConfigError(
            f"model {name!r} is neither a folder nor a hub id",
            "Set model in the spec to a local folder, or to an id as 'organisation/name'.",
        ) from None


def _from_hub(name: str, revision: str, known: ModelsRecord) -> tuple[Path, str]:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    key = f"{name}@{revision}"
    pinned = known.revisions.get(key, revision)
    cached_first = key in known.revisions or os.environ.get("HF_HUB_OFFLINE") == "1"
    for local_files_only in (cached_first, not cached_first):
        try:
            found = snapshot_download(
                name, revision=pinned, allow_patterns=DOWNLOADED, local_files_only=local_files_only
            )
        except (HfHubHTTPError, LocalEntryNotFoundError, HFValidationError, OSError) as error:
            failure = error
        else:
            known.revisions[key] = Path(found).name
            return Path(found), Path(found).name
    raise ConfigError(
        f"model {name!r} (revision {pinned!r}) is neither a folder nor to be had from the hub: "
        f"{str(failure).splitlines()[0]}",
        "Set model in the spec to a local folder, or download the model once while the hub can be reached.",
    )
