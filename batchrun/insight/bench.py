"""A bench: the matrix of lengths, concurrency and states of the prefix cache, measured on one engine."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

import batchrun
from batchrun import engines
from batchrun.engines.base import Engine, EngineConfig
from batchrun.errors import EngineUnavailableError, ExitCode, UsageError, WindowOverError
from batchrun.insight.bench_cells import Cell, CellResult, CellStatus
from batchrun.insight.bench_file import About, BenchFile, check_bench_target
from batchrun.insight.bench_load import Load, Measured
from batchrun.insight.bench_plan import Matrix, estimated_seconds
from batchrun.insight.bench_prompts import CellPrompts
from batchrun.job import Job
from batchrun.random_prompts import RandomPrompts
from batchrun.reporter import Reporter
from batchrun.signals import StopSignals
from batchrun.subject import known_profile, subject_of
from batchrun.telemetry.run_records import timestamp
from batchrun.window import Window

WARM_UP_OUTPUT = 8
"""Tokens of the request that is run before the first cell: what an engine does at its first one is not measured."""


@dataclass(frozen=True, kw_only=True)
class BenchEnd:
    """Every cell with what came of it, as in the file, unless nothing was measured: then `is_written` is false, and
    `path` is as it was. `stop_reason`: what ended it before all was measured.
    """

    path: Path
    about: About
    cells: tuple[CellResult, ...]
    is_written: bool
    exit_code: ExitCode
    stop_reason: str | None = None


class BenchReporter(Reporter):
    """How a bench speaks to whoever watches it; says nothing."""

    def planned(
        self, cells: Sequence[CellResult], num_requests: int, estimates: Mapping[Cell, float]
    ) -> None:
        """What will be measured, with `num_requests` in all, and what is skipped. `estimates` in seconds of the cells
        to be measured; empty without a profile.
        """

    def measured(self, result: CellResult, number: int, estimates: Mapping[Cell, float]) -> None:
        """The `number`-th cell, from 1; `estimates` of those that are left."""


def bench(job: Job, matrix: Matrix, *, output: Path, window: Window, reporter: BenchReporter) -> BenchEnd:
    """Measure the job's engine, cell after cell; each is durable in `output` before the next begins. What stood there
    before stays until something is measured.

    A signal, the window's end and the engine's death end it in good order, after the step under way: what is
    measured is kept, of a cell under way the requests that have ended. While the engine is loaded a signal is the
    caller's. Raises BatchrunError: before anything is loaded where `output` can not be written or there is no time, and
    UsageError where no cell fits the engine.
    """
    check_bench_target(output)
    if window.seconds_left() <= 0:
        raise WindowOverError(
            "the time is over before anything is measured",
            "Give more, as --time-budget 2h, or fewer cells: --inputs, --outputs, --concurrency, --cache.",
            window.stop_reason,
        )
    here = job.resolve()
    config = replace(job.config_for(here), keeps_token_gaps=True)
    reporter.note(f"loading {config.kind} ({config.device}, {config.dtype})")
    engine = engines.start(config)
    signals = StopSignals()
    signals.defer()
    try:
        about = About(
            of=subject_of(job, here),
            model=job.model.name,
            batchrun=batchrun.__version__,
            limits={name: int(value) for name, value in asdict(engine.limits).items()},
            spec=msgspec.to_builtins(job.spec),
            measured_at=timestamp(),
        )
        with signals:
            return _Bencher(job, matrix, engine, config, window, signals, reporter).run(about, output)
    finally:
        engine.close()


class _Bencher:
    def __init__(
        self,
        job: Job,
        matrix: Matrix,
        engine: Engine,
        config: EngineConfig,
        window: Window,
        signals: StopSignals,
        reporter: BenchReporter,
    ) -> None:
        self._window, self._signals, self._reporter = window, signals, reporter
        self._random = RandomPrompts(job.model.vocabulary_size, "bench")
        self._prompts = CellPrompts(self._random, matrix, engine.limits)
        self._load = Load(engine, config, self._is_over)
        self._results = {result.cell: result for result in matrix.plan(engine.limits)}
        self._to_measure = [one.cell for one in self._results.values() if one.status is CellStatus.PENDING]
        self._num_requests = sum(map(matrix.num_requests_of, self._to_measure))
        profile = known_profile(job, reporter.note)
        self._estimates = {
            cell: estimated_seconds(cell, matrix.num_requests_of(cell), engine.limits, profile)
            for cell in self._to_measure
            if profile is not None
        }

    def run(self, about: About, output: Path) -> BenchEnd:
        self._reporter.planned(list(self._results.values()), self._num_requests, self._estimates)
        self._require_cells()
        self._warm_up()
        file = BenchFile(output, about, list(self._results.values()))
        death = self._measure_all(file)
        exit_code, stop_reason = self._ending(death, is_written=file.is_written)
        return BenchEnd(
            path=output,
            about=about,
            cells=tuple(self._results.values()),
            is_written=file.is_written,
            exit_code=exit_code,
            stop_reason=stop_reason,
        )

    def _require_cells(self) -> None:
        if not self._to_measure:
            reasons = dict.fromkeys(str(result.reason) for result in self._results.values())
            raise UsageError(
                f"none of {len(self._results):,} cells can be measured: {'; '.join(reasons)}",
                "Give others, --inputs, --outputs, --concurrency, --cache, or change the spec's [engine].",
            )

    def _warm_up(self) -> None:
        shortest = min(self._to_measure, key=lambda cell: cell.input_tokens)
        prompt = self._random.tokens(shortest.input_tokens)
        request = self._random.request(prompt, min(WARM_UP_OUTPUT, shortest.output_tokens), ignore_eos=True)
        done = self._load.run([request], 1)
        for problem in (done.death, *done.errors):
            if problem:
                reason = f"the engine does not run a prompt of {len(prompt):,} tokens: {problem}"
                raise EngineUnavailableError(reason, "See what is installed: batchrun doctor")

    def _measure_all(self, file: BenchFile) -> str | None:
        """The engine's last words, if it died."""
        for number, cell in enumerate(self._to_measure, 1):
            if self._is_over():
                break
            measured = self._measure(cell)
            if self._is_over() and not measured.requests:
                break
            self._results[cell] = result = self._result_of(cell, measured)
            file.put(result)
            self._estimates.pop(cell, None)
            self._reporter.measured(result, number, self._estimates)
            if measured.death is not None:
                return measured.death
        return None

    def _measure(self, cell: Cell) -> Measured:
        """Without requests where its time is over before one has ended."""
        requests = self._prompts.of(cell)
        primed = self._load.run(requests.priming, cell.concurrency)
        if not primed.is_whole:
            return replace(primed, requests=(), errors=())
        return self._load.run(
            requests.measured, cell.concurrency, before=requests.before, after=requests.after
        )

    def _result_of(self, cell: Cell, measured: Measured) -> CellResult:
        num_failed, num_ended = len(measured.errors), len(measured.requests)
        status, reason = CellStatus.MEASURED, None
        if num_failed:
            reason = f"{num_failed} of {num_ended} requests failed: {measured.errors[0]}"
        if measured.death is not None:
            status, reason = CellStatus.FAILED, f"the engine died: {measured.death}"
        elif not measured.is_whole:
            status = CellStatus.PARTIAL
            reason = f"ended by {self._why_over()} after {num_ended} requests"
        elif num_failed == num_ended:
            status = CellStatus.FAILED
        return CellResult(
            cell=cell,
            status=status,
            reason=reason,
            figures=measured.figures,
            requests=measured.requests,
        )

    # -- its end -------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        return self._signals.received is not None or self._window.seconds_left() <= 0

    def _why_over(self) -> str:
        received = self._signals.received
        return self._window.stop_reason if received is None else received.name

    def _ending(self, death: str | None, *, is_written: bool) -> tuple[ExitCode, str | None]:
        unfinished = {CellStatus.PENDING, CellStatus.PARTIAL}
        if death is not None:
            return ExitCode.INTERRUPTED, f"the engine died: {death}"
        if all(result.status not in unfinished for result in self._results.values()):
            if is_written:
                return ExitCode.COMPLETE, None
            return ExitCode.ENGINE_UNAVAILABLE, str(self._results[self._to_measure[0]].reason)
        is_window = self._signals.received is None
        return ExitCode.WINDOW_OVER if is_window else self._signals.exit_code, self._why_over()
