"""What a reader of a run's report would otherwise ask: what is missing from it, and why."""

from batchrun.insight.division import Division
from batchrun.insight.documents import Documents
from batchrun.insight.facts import RunFacts, newer_runs
from batchrun.insight.sources import Texts
from batchrun.run_record import RunRecord, RunState
from batchrun.telemetry.run_records import damaged_records


def notes_of(
    facts: RunFacts,
    documents: Documents | None,
    texts: Texts,
    damage: str,
    division: Division,
) -> list[str]:
    """In words, the most important first."""
    record, has_timeline = facts.record, len(division.intervals.seconds) > 0
    is_uncalibrated = bool(record.rows.computed) and record.profile is None
    newer = newer_runs(facts)
    later = [run for run in newer if (run.corpus_id, run.seed) == (record.corpus_id, record.seed)]
    is_lost = bool(record.rows.computed) and not has_timeline
    telemetry = (
        "The request telemetry of this run is damaged"
        if facts.requests
        else "There is no request telemetry of this run"
    )
    file, damaged = facts.timeline_file, damaged_records(facts.paths.runs)
    missing = documents.num_asked - documents.num_documents if documents and documents.of_run else 0
    found = {
        f"The run goes on. These are its figures of {record.updated_at}; its timeline and request telemetry are written "
        "every 30 seconds.": record.state is RunState.RUNNING,
        "The run was killed. What was in flight is not counted, and up to 30 seconds of its timeline and of its "
        "request telemetry are lost.": record.stop_reason == "killed",
        "This run has computed no document. What is said of documents is said of the corpus as it stands.": not record.rows.computed,
        "There is no timeline of this run: nothing can be drawn over time.": is_lost and not file.exists(),
        f"The timeline {file} is damaged, or of another version: nothing can be drawn over time.": file.exists()
        and not facts.timeline.num_rows,
        f"Nothing is told of other runs whose records are damaged: {', '.join(map(str, damaged))}": bool(damaged),
        f"{telemetry}: how long a single document took is not known, and what is said of documents is said of the "
        "corpus as it stands.": bool(record.rows.computed)
        and documents is not None
        and not documents.of_run,
        "The engine was not calibrated before this run: reading is told from writing by the run's own timeline, to within "
        "15 %, and the speed can not be held against what the engine reaches. For the next one: batchrun "
        "calibrate": is_uncalibrated and division.pricing is not None,
        "The engine was not calibrated before this run, and its timeline is too short or too even to do without: reading "
        "can not be told from writing, what single documents cost is not known, nor can the speed be held against what "
        "the engine reaches. For the next one: batchrun calibrate": is_uncalibrated and division.pricing is None,
        "Times of the engine are those of a simulator's clock; planning and publishing are real.": facts.has_own_clock,
        f"A later run of this corpus is {_named(later)}. Rows are told as they stand now.": bool(later),
        f"The newest run of this job, of another corpus or seed, is {_named(newer)}.": bool(newer)
        and newer[-1] not in later,
        f"{missing:,} documents of this run are not shown: they have no verdict yet, or left the corpus since.": missing > 0,
        damage: bool(damage),
        f"Extractive coverage is not measured: {texts.problem}.": texts.problem is not None,
    }  # fmt: skip
    return [text for text, holds in found.items() if holds]


def _named(runs: list[RunRecord]) -> str:
    """The last of them."""
    last = runs[-1] if runs else None
    return "" if last is None else last.run_id + ("" if last.rows.computed else ", which computed nothing")
