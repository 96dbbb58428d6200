"""The report of a run: all that its page and its JSON say, in one record."""

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import pyarrow.compute as pc

from batchrun.database import DatabaseError, OutOfMemory
from batchrun.errors import DamageError
from batchrun.insight.ceiling import Ceiling, ceiling_of
from batchrun.insight.cost import Bill, bill_of
from batchrun.insight.course import Course, course_of
from batchrun.insight.diagnosis import Diagnosis, diagnosis_of
from batchrun.insight.documents import Documents, read_documents
from batchrun.insight.evidence import read_evidence
from batchrun.insight.facts import RunFacts, other_shards, runs_of_job
from batchrun.insight.notes import notes_of
from batchrun.insight.past_runs import Night, night_of, off_by
from batchrun.insight.phases import Phases, phases_of, whole_seconds
from batchrun.insight.prices import Pricing
from batchrun.insight.shown import Quality, Shown, quality_of_sample, shown_of
from batchrun.insight.sources import Texts, read_texts
from batchrun.planning.plan import PlanRecord, is_retired, read_record
from batchrun.records import RowStatus
from batchrun.run_record import RunRecord, RunState

LISTS = ("slowest", "expensive", "repetitive")
LAST_RUNS = 14
MOST_REPETITIVE = 5
LEAST_LAG = 0.005
"""Of the time so far, that can be seen."""


@dataclass(frozen=True, kw_only=True)
class Foretold:
    """What was predicted and what happened. `off_by` is a share of the prediction, known where all that was to run
    ran; `planned_input_tokens` are the plan's, of all calls, None in records of an older version.
    """

    estimated_seconds: float | None
    running_seconds: float
    off_by: float | None
    documents_to_run: int
    documents_computed: int
    planned_input_tokens: int | None
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, kw_only=True)
class Overhead:
    """What was computed beside the work: shares of the prompt tokens computed; `cached_share` of those asked for."""

    padding_share: float
    recomputed_tokens: int
    recomputed_share: float
    cached_tokens: int
    cached_share: float
    num_preemptions: int
    num_slices: int
    num_steps: int
    starved_steps: int
    num_engine_deaths: int


@dataclass(frozen=True, kw_only=True)
class OtherShard:
    """The newest run of another shard of the corpus."""

    shard: str
    run_id: str
    state: RunState


@dataclass(frozen=True, kw_only=True)
class Report:
    """`notes` say in words what is missing, and why. `rows` are those of the corpus, or of the shard, by status.
    `time_basis`: by what reading is told from writing, `profile` or `timeline`; None, they are not.
    `kv_cache_usage_max` is the highest share of all steps.
    """

    record: RunRecord
    name: str
    corpus: tuple[str, ...]
    other_shards: tuple[OtherShard, ...]
    notes: tuple[str, ...]
    rows: dict[str, int]
    phases: Phases
    time_basis: str | None
    course: Course
    kv_cache_usage_max: float
    ceiling: Ceiling | None
    foretold: Foretold
    bill: Bill
    overhead: Overhead
    documents: Documents | None
    shown: tuple[Shown, ...]
    quality: tuple[Quality, ...]
    nights: tuple[Night, ...]
    diagnosis: Diagnosis

    @property
    def course_lags(self) -> bool:
        """Whether the record tells of a time that the timeline has not come to, as that of a run that goes on."""
        end = self.phases.planning + self.phases.loading + self.foretold.running_seconds
        return bool(self.course.seconds) and end - self.course.seconds[-1] > LEAST_LAG * end

    def of_list(self, name: str) -> list[Shown]:
        """`slowest`, `expensive`, `repetitive`: the worst first; `sample`."""
        if name == "repetitive":
            found = [one for one in self.shown if "sample" in one.document.lists and one.repetition]
            return sorted(found, key=lambda one: one.repetition or 0.0, reverse=True)[:MOST_REPETITIVE]
        order = [one.key for one in self.documents.of_list(name)] if self.documents else []
        by_key = {one.document.key: one for one in self.shown}
        return [by_key[key] for key in order]

    @property
    def told(self) -> list[Shown]:
        """Each document of a list but the sample, once."""
        lists = chain.from_iterable(map(self.of_list, LISTS))
        return list({one.document.key: one for one in lists}.values())


def report_of(facts: RunFacts, price_per_hour: float | None = None) -> Report:
    """Read all of a run. Raises OSError and DatabaseError where a file can not be read, DamageError for a plan."""
    record, timeline = facts.record, facts.timeline
    plan = read_record(facts.paths)
    evidence = read_evidence(facts)
    division = evidence.division
    documents, damage = _documents(facts, plan, division.pricing)
    bill = bill_of(
        record, facts.job, whole_seconds(record, has_own_clock=facts.has_own_clock), price_per_hour
    )
    texts = _texts(plan, documents)
    shown = tuple(shown_of(one, bill, texts) for one in documents.listed) if documents else ()
    nights = runs_of_job(facts)
    return Report(
        record=record,
        name=facts.job.name,
        corpus=tuple(plan.inputs if plan else record.corpus),
        other_shards=tuple(
            OtherShard(shard=str(other.shard), run_id=other.run_id, state=other.state)
            for other in other_shards(facts)
        ),
        notes=tuple(notes_of(facts, documents, texts, damage, division)),
        rows=_rows(record, documents),
        phases=phases_of(record, division, has_own_clock=facts.has_own_clock),
        time_basis=None if division.pricing is None else division.pricing.basis,
        course=course_of(timeline, division),
        kv_cache_usage_max=pc.max(timeline["kv_cache_usage_max"]).as_py() or 0.0,
        ceiling=ceiling_of(record, timeline, division.input_tokens),
        foretold=_foretold(record),
        bill=bill,
        overhead=_overhead(record),
        documents=documents,
        shown=shown,
        quality=tuple(quality_of_sample(shown)),
        nights=tuple(night_of(each, price_per_hour) for each in nights[-LAST_RUNS:]),
        diagnosis=diagnosis_of(evidence),
    )


def plain(report: Report) -> dict[str, Any]:
    """The same for a script: shares as shares, times in seconds; the run's record as `status --json` has it."""
    fields: dict[str, Any] = msgspec.to_builtins(report)
    lists = {name: [one.document.key for one in report.of_list(name)] for name in LISTS}
    return (
        fields | {"lists": lists} | {name: fields["record"][name] for name in ("job_id", "run_id", "state")}
    )


def _documents(
    facts: RunFacts, plan: PlanRecord | None, pricing: Pricing | None
) -> tuple[Documents | None, str]:
    """What there is, or why there is nothing."""
    if plan is None and is_retired(facts.paths):
        return None, "The plan of this corpus was taken away by gc: nothing can be said of single documents."
    if plan is None:
        return None, "The corpus is not planned to its end: nothing can be said of single documents."
    try:
        found = read_documents(facts, plan, pricing)
    except DamageError as error:
        return None, f"Nothing can be said of single documents: {error.reason}. {error.hint}"
    except OutOfMemory:
        raise
    except DatabaseError as error:
        return None, f"Nothing can be said of single documents: {str(error).splitlines()[0]}"
    return found, " ".join(f"{damage}." for damage in found.damages)


def _texts(plan: PlanRecord | None, documents: Documents | None) -> Texts:
    if plan is None or documents is None:
        return Texts()
    return read_texts(plan, {one.plan_row for one in documents.listed if one.is_ok})


def _rows(record: RunRecord, documents: Documents | None) -> dict[str, int]:
    """As plan and memo table have them now; without a plan as the run left them."""
    if documents is None:
        rows = record.rows
        return {"ok": rows.ok, "failed": rows.failed, "skipped": rows.skipped, "pending": rows.pending}
    counts: Counter[str] = Counter()
    for reason in documents.reasons:
        counts[reason.status] += reason.num_rows
    return {status.value: counts[status] for status in RowStatus}


def _foretold(record: RunRecord) -> Foretold:
    return Foretold(
        estimated_seconds=record.estimated_seconds,
        running_seconds=record.seconds.running,
        off_by=off_by(record),
        documents_to_run=record.to_run,
        documents_computed=record.rows.computed,
        planned_input_tokens=record.to_run_tokens,
        input_tokens=record.tokens.input,
        output_tokens=record.tokens.output,
    )


def _overhead(record: RunRecord) -> Overhead:
    tokens, metrics = record.tokens, record.metrics
    return Overhead(
        padding_share=metrics.padding_share,
        recomputed_tokens=tokens.recomputed,
        recomputed_share=tokens.recomputed / max(1, tokens.input - tokens.cached + tokens.recomputed),
        cached_tokens=tokens.cached,
        cached_share=tokens.cached / max(1, tokens.input),
        num_preemptions=metrics.num_preemptions,
        num_slices=metrics.num_slices,
        num_steps=metrics.num_steps,
        starved_steps=metrics.starved_steps,
        num_engine_deaths=metrics.num_engine_deaths,
    )
