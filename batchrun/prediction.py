"""How long a job's work will take here: by its engine's profile, else by the rate of its last run."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from batchrun.estimate import EDGES, Estimate, Expected, inputs_of
from batchrun.job import Job
from batchrun.planning.work import Work, WorkOutline
from batchrun.store.job_file import last_of_name
from batchrun.subject import known_profile
from batchrun.telemetry.run_records import last_that_computed


class Basis(StrEnum):
    """What a prediction rests on."""

    PROFILE = "profile"
    LAST_RUN = "last run"


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """`seconds` of running, without planning, loading and publishing; None where nothing is known yet.

    `estimate` follows the run where there is a profile.
    """

    seconds: float | None = None
    basis: Basis | None = None
    estimate: Estimate | None = None

    @property
    def basis_text(self) -> str:
        """In words, for a person."""
        if self.estimate is not None:
            profile = self.estimate.profile
            return f"by the profile of {profile.calibrated_at[:10]} on {profile.of.device}"
        return "" if self.basis is None else "at the rate of the last run"


def predict(job: Job, work: Work, note: Callable[[str], None]) -> Prediction:
    """Foretell what is to run. By a profile it costs a pass over the lengths, 20 ms for 100,000."""
    profile = known_profile(job, note)
    if profile is not None and work.counts.to_run:
        outline = outline_of(job, work, EDGES)
        estimate = Estimate(profile=profile, expected=_expected(job, outline))
        return Prediction(seconds=estimate.seconds, basis=Basis.PROFILE, estimate=estimate)
    rate = known_rate(job)
    if rate is None:
        return Prediction()
    return Prediction(seconds=work.counts.to_run_tokens / rate, basis=Basis.LAST_RUN)


def outline_of(job: Job, work: Work, edges: tuple[int, ...]) -> WorkOutline:
    """The work by length; a document that leaves no room for its output is long."""
    return work.outline(edges, job.max_model_len - job.spec.output.max_tokens)


def _expected(job: Job, outline: WorkOutline) -> Expected:
    documents, tokens = outline.documents_by_bucket, outline.tokens_by_bucket
    longest = job.max_model_len - job.spec.output.max_tokens
    inputs = inputs_of(list(documents.values()), list(tokens.values()), longest=longest)
    prompts = sum(number for number, _ in inputs)
    total = sum(documents.values())
    per_document = prompts / total if total else 1.0  # a long document has an output for each of its parts
    known = known_output(job)
    return Expected(
        inputs=inputs,
        documents=total,
        output_tokens=job.spec.output.max_tokens * per_document if known is None else known,
        running=job.spec.engine.max_num_seqs,
    )


def known_output(job: Job) -> float | None:
    """Output tokens of a document on average, as the job's last runs counted them."""
    runs = last_that_computed(job.workspace, job.job_id)
    computed = sum(run.rows.computed for run in runs)
    return sum(run.tokens.output for run in runs) / computed if computed else None


def known_rate(job: Job) -> float | None:
    """Prompt tokens a second in the last run of this job, or of the last job of its name."""
    before = last_of_name(job.workspace, job.name)
    for job_id in (job.job_id, before.job_id if before else job.job_id):
        runs = last_that_computed(job.workspace, job_id)
        rates = [
            run.tokens.input / run.seconds.running for run in runs if run.tokens.input and run.seconds.running
        ]
        if rates:
            return rates[-1]
    return None
