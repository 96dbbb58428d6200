"""A job, ready to be planned or run: its spec, model, fingerprint, prompt and paths."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from batchrun import engines
from batchrun import spec as specs
from batchrun.engines.base import EngineConfig, Owner
from batchrun.errors import ConfigError
from batchrun.model import Model, find_model
from batchrun.prompts.frames import Prompts, job_prompts
from batchrun.prompts.tokenizer import Tokenizer
from batchrun.spec import JobSpec
from batchrun.store import job_file
from batchrun.store.job_file import JobRecord, Resolved
from batchrun.telemetry.run_records import timestamp
from batchrun.worker.calls import CallSettings
from batchrun.worker.feeder import FeedingSettings
from batchrun.worker.residency import Residency
from batchrun.workspace import JobPaths, Workspace

LEAST_LOAD_SECONDS, SLOWEST_LOAD = 1800.0, 20e6
"""Bytes a second: a network disk that others use, too. A 70B model in 16 bits may take two hours."""


@dataclass(frozen=True)
class Job:
    """Loads no engine; the tokenizer and the prompt are loaded when they are first needed."""

    workspace: Workspace
    spec: JobSpec
    model: Model
    seed: int

    @cached_property
    def fields(self) -> dict[str, Any]:
        return specs.fingerprint_fields(
            self.spec, model_content=self.model.content, max_model_len=self.max_model_len
        )

    @cached_property
    def fingerprint(self) -> str:
        return specs.fingerprint(self.fields)

    @property
    def name(self) -> str:
        return self.spec.name or "job"

    @property
    def job_id(self) -> str:
        return specs.job_id(self.name, self.fingerprint)

    @property
    def paths(self) -> JobPaths:
        return self.workspace.job(self.job_id, self.seed)

    @cached_property
    def max_model_len(self) -> int:
        return self.model.max_model_len(self.spec.engine.max_model_len)

    @cached_property
    def load_seconds(self) -> float:
        """The longest that the engine may take to be there."""
        given = self.spec.engine.load_seconds
        return given or max(LEAST_LOAD_SECONDS, self.model.weight_bytes / SLOWEST_LOAD)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self.model.folder)

    @cached_property
    def prompts(self) -> Prompts:
        return job_prompts(self.model.folder, self.spec.prompt, self.tokenizer)

    def call_settings(self, variables: Sequence[str]) -> CallSettings:
        """Of calls whose prompts name the columns `variables`."""
        output = self.spec.output
        return CallSettings(
            prompts=self.prompts,
            tokenizer=self.tokenizer,
            variables=tuple(variables),
            max_model_len=self.max_model_len,
            max_tokens=output.max_tokens,
            temperature=output.temperature,
            top_p=output.top_p,
            seed=self.seed,
        )

    @property
    def feeding(self) -> FeedingSettings:
        residency = self.spec.residency
        return FeedingSettings(
            edges=self.spec.buckets.edges,
            residency=Residency(slice_tokens=residency.slice_tokens, max_share=residency.max_share),
        )

    def check_room(self) -> None:
        """Raise ConfigError where not even a short document would fit."""
        num_tokens = self.prompts.document({}).num_tokens
        if self.max_model_len - num_tokens - self.spec.output.max_tokens < 1:
            raise ConfigError(
                f"prompt ({num_tokens} tokens) and output.max_tokens ({self.spec.output.max_tokens}) "
                f"leave no room for a document in max_model_len {self.max_model_len}",
                "Lower output.max_tokens, or raise engine.max_model_len.",
            )

    def register(self, owner: str, note: Callable[[str], None], count_ok: Callable[[str], int]) -> None:
        """Write `job.json` where the job is new, and say what changed since the last job of its name.

        Of a known job, what is not part of the fingerprint is kept as last submitted: `resume` reads it.

        `count_ok` gives the finished summaries of a job id. Raises ConfigError where another job has
        this id: two fingerprints with the same first 8 digits.
        """
        known = job_file.read(self.paths.job_record)
        if known is not None and known.fingerprint != self.fingerprint:
            raise ConfigError(
                f"job id {self.job_id} is taken by another job", "Give this one another --name."
            )
        if known is None:
            self._say_changes(note, count_ok)
        job_file.update(
            self.paths.job_record,
            lambda found: msgspec.structs.replace(found or self._record(), spec=self.spec),
            owner,
        )

    def _say_changes(self, note: Callable[[str], None], count_ok: Callable[[str], int]) -> None:
        before = job_file.last_of_name(self.workspace, self.name)
        if before is not None:
            changes = "; ".join(job_file.changed_fields(before, self.fields))
            note(
                f"new job {self.job_id}: since {before.job_id} this changed: {changes}. "
                f"{count_ok(before.job_id):,} finished summaries of {before.job_id} are not reused."
            )

    def _record(self) -> JobRecord:
        return JobRecord(
            job_id=self.job_id,
            name=self.name,
            fingerprint=self.fingerprint,
            fields=self.fields,
            spec=self.spec,
            model_folder=str(self.model.folder.absolute()),
            created_at=timestamp(),
        )

    def engine_config(self, *, accept_engine: bool, owner: Owner) -> EngineConfig:
        """What to start the engine with; what `auto` is here is frozen by the first run of the job.

        Raises EngineUnavailableError where no engine is installed, and ConfigError (78) where this
        machine resolves `auto` differently, unless `accept_engine`.
        """
        here = self.resolve()
        self._freeze(here, accept_engine=accept_engine, owner=owner.run_id)
        return self.config_for(here, owner)

    def resolve(self) -> Resolved:
        """What `auto` is on this machine. Raises EngineUnavailableError and ConfigError."""
        engine = self.spec.engine
        kind = engines.resolve_kind(engine.kind)
        engines.check_speculation(kind, engine.speculation)
        device, dtype = engines.resolve_device_and_dtype(kind, engine.dtype)
        return Resolved(kind=kind, dtype=dtype, device=device)

    def config_for(self, here: Resolved, owner: Owner | None = None) -> EngineConfig:
        """What to start the engine with where `auto` is `here`."""
        engine = self.spec.engine
        return EngineConfig(
            kind=here.kind,
            dtype=here.dtype,
            device=here.device,
            model=self.model.folder,
            max_model_len=self.max_model_len,
            max_num_batched_tokens=engine.max_num_batched_tokens,
            max_num_seqs=engine.max_num_seqs,
            samples=self.spec.output.temperature > 0,
            speculation=engine.speculation,
            bucket_edges=self.spec.buckets.edges,
            options=dict(engine.options),
            owner=owner,
        )

    def _freeze(self, here: Resolved, *, accept_engine: bool, owner: str) -> None:

        def freeze(record: JobRecord | None) -> JobRecord:
            assert record is not None, "a job is registered before it runs"
            return msgspec.structs.replace(record, resolved=record.resolved or here)

        frozen = job_file.update(self.paths.job_record, freeze, owner).resolved
        assert frozen is not None
        if not accept_engine:
            self.check_resolved(frozen, here)

    def check_resolved(self, frozen: Resolved, here: Resolved) -> None:
        """Raise ConfigError where this machine resolves to another engine or dtype than the job was begun with."""
        if (frozen.kind, frozen.dtype) != (here.kind, here.dtype):
            raise ConfigError(
                f"job {self.job_id} was begun with {frozen.kind} in {frozen.dtype} on {frozen.device}; "
                f"this machine resolves to {here.kind} in {here.dtype} on {here.device}: "
                "its summaries would differ from those already made",
                "Run it on a machine like the first, or accept mixed summaries with --accept-engine.",
            )


def open_job(workspace: Workspace, spec_path: Path, *, name: str | None, seed: int) -> Job:
    """The job of a spec file. A relative model folder is looked for from the workspace. Raises ConfigError."""
    spec = specs.load_spec(spec_path)
    if name is not None:
        spec = specs.renamed(spec, name)
    model = find_model(spec.model, spec.revision, workspace.home, workspace.models_record)
    job = Job(workspace, spec, model, seed)
    job.check_room()
    return job


def reopen_job(workspace: Workspace, job_id: str, *, seed: int) -> Job:
    """A job as it was frozen. Raises ConfigError where its model is no longer what it was."""
    record = job_file.read(workspace.job(job_id, seed).job_record)
    if record is None:
        raise ConfigError(f"there is no job {job_id}", "List the jobs: batchrun status")
    name = record.model_folder if Path(record.model_folder).is_dir() else record.spec.model
    model = find_model(name, record.spec.revision, workspace.home, workspace.models_record)
    if str(model.folder.absolute()) == record.model_folder and not record.fields["model"].startswith("xxh3:"):
        model = replace(model, content=record.fields["model"])
    job = Job(workspace, record.spec, model, seed)
    if job.fingerprint != record.fingerprint:
        changes = "; ".join(job_file.changed_fields(record, job.fields))
        raise ConfigError(
            f"job {job_id} can not go on as it was: {changes}",
            "Restore what changed, or submit the corpus again: that is a new job.",
        )
    return job
