"""Wires a run: lock, plan, feed, commit, publish; and turns its end into a record and an exit code."""

import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import pyarrow as pa

from batchrun import atomic_file, engines
from batchrun.engines.base import EngineDeadError, Owner
from batchrun.engines.processes import started_here
from batchrun.errors import BatchrunError, DamageError, ExitCode, InterruptedRunError, WindowOverError
from batchrun.holding import take_lock
from batchrun.job import Job
from batchrun.memory import peak_memory_bytes, release_unused
from batchrun.orphans import orphans
from batchrun.planning import spool
from batchrun.planning.buckets import labels
from batchrun.planning.departures import forget_plans
from batchrun.planning.plan import PlanRecord, places_of, read_record
from batchrun.planning.work import Work
from batchrun.prediction import predict
from batchrun.preparation import plan_settings
from batchrun.progress import Progress, rows_before
from batchrun.publication import count_shard, publish_plan
from batchrun.reporter import Reporter
from batchrun.room import require_room
from batchrun.run_options import RunOptions
from batchrun.run_record import PhaseSeconds, RowCounts, RunRecord, RunState
from batchrun.shard import CorpusName
from batchrun.signals import StopSignals
from batchrun.storage import storage_errors
from batchrun.store.checkpoints import Checkpoints
from batchrun.store.stored_rows import nested_calls, partial_outputs
from batchrun.store.target import check_folder
from batchrun.succession import find_succession
from batchrun.telemetry.gpus import Gpus
from batchrun.telemetry.metrics_file import MetricsFile
from batchrun.telemetry.requests import RequestLog, join_parts
from batchrun.telemetry.run_records import RunLog, damaged_records, next_number, read_runs, timestamp
from batchrun.telemetry.timeline import Timeline
from batchrun.watch import Watch
from batchrun.watchdog import Watchdog
from batchrun.worker.worker import Worker

T = TypeVar("T")

CLOSE_SECONDS = 6.0


class Run:
    """One submission of a corpus, or of a shard of it, to a job, holding its lock from beginning to end."""

    def __init__(self, job: Job, corpus: CorpusName, options: RunOptions, reporter: Reporter) -> None:
        self.job = job
        self.paths = job.paths.corpus(corpus.corpus_id)
        self.options = options
        self.reporter = reporter
        self.signals = StopSignals()
        self.run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
        self.lock = take_lock(self.paths, self.run_id, barrier=job.paths.collection_lock)
        try:
            self._begin(corpus)
        except BaseException:
            self.lock.release()
            raise

    def _begin(self, corpus: CorpusName) -> None:
        options, job = self.options, self.job
        self.previous = read_runs(self.paths.runs)
        self.started = time.monotonic()
        record = RunRecord(
            job_id=job.job_id,
            run_id=self.run_id,
            seed=job.seed,
            corpus_id=corpus.corpus_id,
            corpus=corpus.corpus,
            shard=corpus.shard,
            whole_id=corpus.whole_id,
            state=RunState.RUNNING,
            output=str(options.output) if options.output else None,
            pid=os.getpid(),
            host=socket.gethostname(),
            started_at=timestamp(),
            window_ends_at=options.window.ends_at,
            release=options.release,
            number=next_number(job.workspace, job.job_id),
        )
        self.log = RunLog(self.paths.runs, record, self._export())
        self.checkpoints = Checkpoints(job.paths, self.run_id)
        self.worker: Worker | None = None
        self.is_closing = False  # the window ends: nothing more is admitted

    @property
    def _owner(self) -> Owner:
        return Owner(run_id=self.run_id, lock=self.lock.path)

    def _export(self) -> Callable[[RunRecord], None]:
        path = self.options.metrics_file
        return MetricsFile(path, self.previous, self.reporter.note).write if path else lambda _: None

    # -- the whole -----------------------------------------------------------------------------------

    def execute(
        self, find_plan: Callable[["Run"], PlanRecord], replan: Callable[["Run"], PlanRecord] | None
    ) -> RunRecord:
        """Run to an end and return the record of it. Raises BatchrunError, with the record written."""
        with self.signals:
            try:
                with storage_errors(self.job.workspace.home):
                    return self._phases(find_plan, replan)
            except BaseException as error:
                self.signals.defer()
                if self.signals.received is not None:  # whatever the signal made of what it interrupted
                    return self._stopped(self.signals.received)
                self._end_badly(error)
                raise
            finally:
                self.signals.defer()
                if self.worker is not None:
                    self.worker.close(CLOSE_SECONDS)
                self.lock.release()
                self.reporter.finished()

    def _stopped(self, received: signal.Signals) -> RunRecord:
        """The record of a run that a signal ended: what has no verdict is pending."""
        rows = self.log.record.rows
        pending = rows.total - rows.ok - rows.failed - rows.skipped
        self.log.update(rows=replace(rows, pending=max(0, pending)))
        return self._end(RunState.INTERRUPTED, received.name, self.signals.exit_code)

    def _phases(
        self, find_plan: Callable[["Run"], PlanRecord], replan: Callable[["Run"], PlanRecord] | None
    ) -> RunRecord:
        self._tell_orphans()
        for told in self.job.model.notes:
            self.warn(told)
        self._clean()
        self.checkpoints.intact_segments()
        self._tell_damages()
        plan = self._timed("planning", lambda: find_plan(self))
        try:
            work = self._open_work(plan)
        except DamageError as error:
            if replan is None:
                raise
            self.warn(f"{error.reason}; the corpus is planned anew")
            plan = self._timed("planning", lambda: replan(self))
            work = self._open_work(plan)
        with work:
            self.log.write(
                to_run=work.counts.to_run,
                to_run_tokens=work.counts.to_run_tokens,
                first_planned_at=plan.pending_since,
                rows=rows_before(work.counts),
            )
            self.is_closing = self.options.window.seconds_to_work(work.counts.total) <= 0
            if work.counts.to_run and not self.is_closing:
                self._run(work, plan.variables)
        release_unused()
        return self._finish(plan)

    def _clean(self) -> None:
        """Remove what dead runs left half-written: while the lock is held, every other run here is dead."""
        self.checkpoints.clean()
        for path in damaged_records(self.paths.runs):
            aside = atomic_file.set_aside(path, self.job.paths.damaged)
            self.warn(f"run record {path} is damaged; set aside as {aside}: nothing of it is believed")
        for folder in (self.paths.runs, self.paths.requests, self.paths.timelines):
            atomic_file.remove_leftovers(folder, [self.run_id])
        if self.options.output is not None:  # in a folder that is not ours alone
            atomic_file.remove_of(self.options.output.parent, [record.run_id for record in self.previous])
        join_parts(self.paths.requests, self.run_id)

    def _open_work(self, plan: PlanRecord) -> Work:
        """What is left to run. Raises DamageError where the spool lacks some of it."""
        work = Work(
            self.paths,
            plan,
            self.job.paths.scratch,
            self._settled,
            lambda lengths: plan_settings(self.job, tuple(plan.variables)).tokens_read(lengths),
        )
        if work.num_missing:
            work.close()
            raise DamageError(
                f"{work.num_missing:,} documents to run are not in the spool {self.paths.spool}",
                "Submit the corpus again: the spool is made anew.",
            )
        return work

    def _settled(self, consume: Callable[[pa.RecordBatchReader], None]) -> None:
        self.checkpoints.settled_keys(consume, retry_all=self.options.retry_all)

    # -- running -------------------------------------------------------------------------------------

    def _run(self, work: Work, variables: list[str]) -> None:
        known_lengths = self.checkpoints.recent_lengths()
        require_room(
            self.job.workspace.home,
            self.options.output,
            to_run=work.counts.to_run,
            num_rows=work.counts.total,
            output_tokens=[output for _, output in known_lengths],
            max_tokens=self.job.spec.output.max_tokens,
        )
        config = self.job.engine_config(accept_engine=self.options.accept_engine, owner=self._owner)
        self.checkpoints.compact()
        predicted = predict(self.job, work, self.reporter.note)
        estimate = predicted.estimate
        self.log.update(estimated_seconds=predicted.seconds, profile=estimate and estimate.profile)
        self.reporter.note(
            f"{work.counts.to_run:,} documents ({work.counts.to_run_tokens:,} tokens) to run on "
            f"{config.kind} ({config.device}, {config.dtype}); loading the model"
        )
        self.signals.defer()
        with (
            nested_calls(self.checkpoints) as nested,
            partial_outputs(self.checkpoints) as partials,
            self._request_log() as requests,
        ):
            self.worker = worker = Worker(
                documents=work.documents(by_bucket=config.kind == "transformers", prefer=self.options.prefer),
                settings=self.job.call_settings(variables),
                recall=nested.find,
                begun=partials.find if self.checkpoints.has_partials() else None,
                feeding=replace(self.job.feeding, known_lengths=tuple(known_lengths)),
                start_engine=lambda share: engines.start(config.with_sequences(share)),
                commit=self.checkpoints.commit,
                observe=requests.observe,
                loading=partial(started_here, self.run_id),
            )
            progress = Progress(
                worker, work.counts, self.started, Gpus(config), estimate, self.options.window
            )
            worker.start()
            timeline = Timeline(self.paths.timelines, self.run_id)
            watch = self._watch(worker, progress, timeline)
            try:
                watch.until_end()
            finally:
                self.is_closing = watch.is_closing
                self._drain(worker, progress)
                timeline.end(progress.sample(self.log.record))
        self.signals.undefer()

    def _request_log(self) -> RequestLog:
        edges = self.job.spec.buckets.edges
        return RequestLog(self.paths.requests, self.run_id, self.started, partial(labels, edges))

    def _watch(self, worker: Worker, progress: Progress, timeline: Timeline) -> Watch:
        return Watch(
            worker=worker,
            progress=progress,
            log=self.log,
            timeline=timeline,
            reporter=self.reporter,
            signals=self.signals,
            window=self.options.window,
            watchdog=Watchdog(self.job.spec.engine.stall_seconds),
            load_seconds=self.job.load_seconds,
            places_of=self._places_of,
        )

    def _places_of(self, keys: Sequence[bytes]) -> list[str]:
        record = read_record(self.paths)
        return places_of(self.paths.plan, record, keys) if record else []

    def _drain(self, worker: Worker, progress: Progress) -> None:
        """Make durable what came out of the engine, whatever ended the watch."""
        try:
            worker.drain()
        except EngineDeadError as error:
            raise InterruptedRunError(
                f"the engine died: {error}", "What is finished is kept. Submit again to go on."
            ) from error
        finally:
            self.log.record = progress.of(self.log.record)

    # -- endings -------------------------------------------------------------------------------------

    def _finish(self, plan: PlanRecord) -> RunRecord:
        num_damages = len(self.checkpoints.damages)
        self.checkpoints.compact()
        release_unused()
        published = self._timed("publishing", lambda: self._publish(plan))
        self._tell_damages(num_damages)
        rows = replace(
            self.log.record.rows,
            ok=published.ok,
            failed=published.failed,
            skipped=published.skipped,
            pending=published.pending,
        )
        self.log.update(rows=rows)
        if rows.pending and self.is_closing:
            return self._end(RunState.INTERRUPTED, self.options.window.stop_reason, ExitCode.WINDOW_OVER)
        if rows.pending:
            return self._end(
                RunState.INTERRUPTED, f"{rows.pending:,} rows have no verdict yet", ExitCode.INTERRUPTED
            )
        self._cut_spool()
        join_parts(self.paths.requests, self.run_id)
        self._count_departed()
        attempted = rows.total - rows.skipped
        too_many = rows.failed > self.options.max_error_rate * attempted
        code = ExitCode.TOO_MANY_FAILED if too_many else ExitCode.COMPLETE
        ended = self._end(RunState.COMPLETE, None, code)
        forget_plans(self.paths)
        return ended

    def _count_departed(self) -> None:
        found = find_succession(self.job, self.log.record.corpus_name)
        if found is not None:
            rows = replace(self.log.record.rows, departed=found.departed)
            self.log.update(rows=rows, compared_with=found.run_id)

    def _publish(self, plan: PlanRecord) -> RowCounts:
        """Count the rows by status, in the output or, of a shard, without one."""
        if plan.shard is not None:
            return count_shard(self.paths, plan, plan.shard, self.checkpoints)
        assert self.options.output is not None, "all but shards have an output"
        check_folder(self.options.output.parent)  # it was there at the start; a night has passed
        return publish_plan(self.job, self.paths, plan, self.checkpoints, self.options.output, self.run_id)

    def _cut_spool(self) -> None:
        """Keep the failed rows alone, so that `resume --failed` needs no corpus."""
        spool.keep_only(self.paths.spool, self.checkpoints.failed_keys(), self.run_id)

    def _end(self, state: RunState, stop_reason: str | None, exit_code: ExitCode) -> RunRecord:
        seconds = replace(self.log.record.seconds, total=time.monotonic() - self.started)
        metrics = replace(self.log.record.metrics, peak_memory_bytes=peak_memory_bytes())
        if state is RunState.COMPLETE:
            metrics = replace(
                metrics, waiting_prefill_tokens=0, oldest_wait_seconds=0.0, seconds_to_completion=None
            )
        self.log.write(
            state=state, stop_reason=stop_reason, exit_code=int(exit_code), seconds=seconds, metrics=metrics
        )
        return self.log.record

    def _end_badly(self, error: BaseException) -> None:
        """Write the end where the disk lets us; the error that is on its way says the rest."""
        can_go_on = isinstance(error, InterruptedRunError | WindowOverError)
        state = RunState.INTERRUPTED if can_go_on else RunState.FAILED
        reason = error.reason if isinstance(error, BatchrunError) else repr(error)
        if isinstance(error, WindowOverError):
            reason = error.stop_reason
        code = error.exit_code if isinstance(error, BatchrunError) else ExitCode.BUG
        try:
            self._end(state, reason, code)
        except OSError as failure:
            self.reporter.note(f"the run record {self.log.path} can not be written: {failure}")
        if isinstance(error, DamageError):
            atomic_file.remove(self.paths.plan_record)  # so that the next submit plans anew
        error.record = self.log.record  # type: ignore[attr-defined] # of a bug too: the summary has its run

    def _timed(self, phase: str, task: Callable[[], T]) -> T:
        started = time.monotonic()
        result = task()
        seconds: PhaseSeconds = self.log.record.seconds
        spent = getattr(seconds, phase) + time.monotonic() - started
        release_unused()
        self.log.update(seconds=replace(seconds, **{phase: spent}))
        return result

    def _tell_damages(self, first: int = 0) -> None:
        for damage in self.checkpoints.damages[first:]:
            self.warn(str(damage))

    def _tell_orphans(self) -> None:
        for orphan in orphans(self._owner):
            self.warn(f"{orphan}. {orphan.hint}")

    def warn(self, text: str) -> None:
        """Say it, and keep it in the run record."""
        self.reporter.note(text)
        self.log.update(warnings=[*self.log.record.warnings, text])
