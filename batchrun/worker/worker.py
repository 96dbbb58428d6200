"""The worker: documents to the engine, completions to the store, on threads that do not wait for each other.

    feeder     documents → requests, a bounded number ahead
    driver     admission → add → step, and nothing else between the steps
    collector  slices and completions → text → rows, and what they lead to
    committer  rows → disk

The main thread only watches, so that it answers signals while a step is long.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event, Lock, Semaphore, Thread

import msgspec

from batchrun.engines.base import Engine, EngineDeadError, EngineLimits, EngineSnapshot
from batchrun.engines.processes import EngineProcess
from batchrun.errors import EngineUnavailableError
from batchrun.records import Document, Observation, Request, Summary
from batchrun.worker.calls import CallSettings, sampling_seed
from batchrun.worker.committer import Committer
from batchrun.worker.driver import Driver
from batchrun.worker.engine_keeper import EngineKeeper, StartEngine
from batchrun.worker.feeder import Feeder, FeedingSettings
from batchrun.worker.harvest import Harvest, Step
from batchrun.worker.residency import Slice
from batchrun.worker.tally import FeedingTally, Tally
from batchrun.worker.tasks import Recall, Tasks

BATCHES_AHEAD = 4
"""Batches of requests (each a batch of the documents' iterator) made before the engine asks for them."""
STEP_SECONDS = 0.2
"""What a stopped run waits for the step under way."""
STEPS_BEHIND = 64
"""Steps whose completions may wait for the collector before the engine waits."""


class _Requests(msgspec.Struct, frozen=True, kw_only=True):
    """On their way to the engine; `ahead`: from new documents, whose number ahead is bounded."""

    requests: list[Request]
    ahead: bool


_STAGES = {"_feed": "feeder", "_drive": "driver", "_collect": "collector"}


class Worker:
    """Runs all documents through one engine. `start`, watch `is_running`, then `drain`; `stop` ends it early, and
    `finish` when what runs has ended.
    """

    def __init__(
        self,
        *,
        documents: Iterator[list[Document]],
        settings: CallSettings,
        recall: Recall,
        start_engine: StartEngine,
        commit: Callable[[Sequence[Summary]], None],
        feeding: FeedingSettings | None = None,
        begun: Recall | None = None,
        observe: Callable[[Sequence[Observation]], None] = lambda _: None,
        loading: Callable[[], Sequence[EngineProcess]] = list,
    ) -> None:
        """`recall` and `begun` find finished nested calls, and outputs that an earlier run began; `loading` the
        processes of an engine that is being started.
        """
        self._documents = documents
        self._settings = settings
        self._feeding = feeding or FeedingSettings()
        self._observe = observe
        self._find_begun = begun
        self._find_loading = loading
        self._tasks = Tasks(settings, recall, self._begun_here if begun else None)
        self._harvest = Harvest(self._tasks, settings.tokenizer)
        self._keeper = EngineKeeper(start_engine)
        self._requests: SimpleQueue[_Requests | None] = SimpleQueue()
        self._steps: SimpleQueue[Step | None] = SimpleQueue()
        self._ahead = Semaphore(BATCHES_AHEAD)
        self._behind = Semaphore(STEPS_BEHIND)
        self._loaded = Event()
        self._fed = Event()
        self._stop = Event()
        self._closing = Event()
        self._collected = Event()
        self._keeping = Lock()
        self._errors: list[BaseException] = []
        self._committer = Committer(commit)
        self._threads = [
            Thread(target=self._guarded, args=(work,), name=_STAGES[work.__name__], daemon=True)
            for work in (self._feed, self._drive, self._collect)
        ]
        self._given_up: list[Slice] = []  # after deaths of the engine, and not yet handed over
        self.tally = Tally()
        self.loaded_at: float | None = None  # time.monotonic() when the engine was there
        self._cpu_seconds: dict[str, float] = {}
        self._feeder: Feeder | None = None
        self._driver: Driver | None = None
        self.feeding = FeedingTally()
        self.collector_wait_seconds = 0.0  # in which the engine waited for its completions to be taken

    # -- for the main thread ------------------------------------------------------------------------

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def is_running(self) -> bool:
        """Whether there is more to come: all collected, an error, or `stop` ends it."""
        return not (self._collected.is_set() or self._errors or self._stop.is_set())

    def wait(self, seconds: float) -> None:
        """Return when all is collected, or after `seconds`."""
        self._collected.wait(seconds)

    def finish(self) -> None:
        """Admit nothing more, and let what runs in the engine come to its end, or to that of its slice."""
        self._closing.set()
        self._requests.put(None)

    def stop(self) -> None:
        """Admit nothing more. What runs in the engine is given up; what came out of it is kept."""
        self._stop.set()
        self._loaded.set()
        self._ahead.release()
        self._behind.release()
        self._requests.put(None)
        self._steps.put(None)

    def drain(self) -> None:
        """Make everything durable that came out of the engine; the documents are not read any more then.

        Raises the first error of a thread.
        """
        if self._errors or self._closing.is_set():
            self.stop()
        feeder, _, collector = self._threads
        feeder.join()
        collector.join(timeout=2.0 if self._errors else None)
        self._committer.close()
        if self._errors:
            raise self._errors[0]

    def close(self, seconds: float) -> bool:
        """End the engine and its processes within about `seconds`; whether its thread has ended, too.

        A step or a start inside this process can not be cut short: where one is under way after `stop`, its
        thread is left to the process' end. An engine's own processes are ended in any case.
        """
        driver = self._threads[1]
        driver.join(STEP_SECONDS if self._stop.is_set() else seconds)
        self.stop()
        if driver.is_alive() and self._keeper.engine is not None and self._keeper.engine.process_ids:
            self._keeper.close()
            driver.join(seconds)
        elif driver.is_alive() and self.seconds_in_load:
            self._kill_loading()
        return not driver.is_alive()

    def _kill_loading(self) -> None:
        for process in self._find_loading():
            process.kill()

    @property
    def limits(self) -> EngineLimits | None:
        """Of the engine that runs, or ran last; None before the first is there."""
        return self._keeper.limits

    @property
    def engine_label(self) -> str | None:
        return self._keeper.label

    def kill_engine(self) -> bool:
        """Kill the engine's processes, so that a step that hangs ends; False where it has none of its own."""
        process_ids = [] if self._keeper.engine is None else self._keeper.engine.process_ids
        for process_id in process_ids:
            with suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
        return bool(process_ids)

    def give_up_load(self) -> str | None:
        """Stop, and kill the processes of an engine that is being started. Returns the last error that it told of."""
        self.stop()
        told = [error for process in self._find_loading() if (error := process.last_error()) is not None]
        self._kill_loading()
        return told[-1] if told else None

    @property
    def documents_in_engine(self) -> list[bytes]:
        """Keys of the documents whose calls the engine has."""
        request_ids = self._feeder.in_engine if self._feeder else []
        calls = (self._tasks.find_call(request_id) for request_id in request_ids)
        return list(dict.fromkeys(call.document_key or call.key for call in calls if call))

    @property
    def engine_deaths(self) -> list[str]:
        """What was said of each engine that died and was started again."""
        return self._keeper.deaths

    @property
    def stay_seconds(self) -> float:
        """What running requests need at most to end, by how long the last ones were in the engine."""
        return self._driver.stay_seconds if self._driver else 0.0

    @property
    def running_seconds(self) -> float:
        """In which there was an engine, by its clock: that of a simulator may be its own."""
        return self._keeper.running.seconds

    @property
    def loading_seconds(self) -> float:
        """In which there was none, since the first was begun."""
        return self._keeper.loading.seconds

    @property
    def seconds_in_load(self) -> float:
        """For how long an engine is being started; 0 where none is."""
        return self._keeper.attempt.lap_seconds

    @property
    def store_wait_seconds(self) -> float:
        """Time in which finished rows waited for the disk to take more."""
        return self._committer.wait_seconds

    @property
    def cpu_seconds(self) -> dict[str, float]:
        """CPU time of the threads that have ended, by name; an engine in this process is the driver's."""
        return self._cpu_seconds | self._committer.cpu_seconds

    @property
    def num_admitted_tokens(self) -> int:
        """Prompt tokens that were given to the engine, those of a prompt once."""
        return self._feeder.num_admitted_tokens if self._feeder else 0

    @property
    def num_cached_again(self) -> int:
        """Tokens that slices after the first of an output found in the engine's cache."""
        return self._feeder.num_cached_again if self._feeder else 0

    @property
    def num_further(self) -> int:
        """Outputs that wait for their next slice."""
        return self._feeder.num_further if self._feeder else 0

    @property
    def num_recalled_tokens(self) -> int:
        """Input tokens of nested calls that need not be computed again."""
        return self._tasks.recalled_tokens

    def snapshot(self) -> EngineSnapshot:
        """Of the engine, and its counts since the start of the run."""
        return self._keeper.snapshot()

    # -- the threads --------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again by `drain`, on the main thread
            if not self._stop.is_set() or not isinstance(error, EngineDeadError | EngineUnavailableError):
                self._errors.append(error)
            self._collected.set()
        finally:
            self._cpu_seconds[_STAGES[work.__name__]] = time.thread_time()

    def _feed(self) -> None:
        for batch in self._documents:
            self._ahead.acquire()
            if self._stop.is_set():
                return
            moved = self._tasks.open(batch)
            self._keep(moved.rows, moved.rows)
            self._loaded.wait()
            self._ask(moved.requests, ahead=True)
        self._fed.set()
        if self._tasks.num_open == 0:
            self._requests.put(None)

    def _ask(self, requests: list[Request], *, ahead: bool) -> None:
        if self._feeder:
            self._feeder.prepare(requests)
        self._requests.put(_Requests(requests=requests, ahead=ahead))

    def _begun_here(self, keys: Sequence[bytes]) -> dict[bytes, Summary]:
        """Outputs that this engine began: another one, or another version, would go on in other words."""
        self._loaded.wait()
        assert self._find_begun is not None, "asked for only where there are some"
        rows = {} if self._stop.is_set() else self._find_begun(keys)
        return {key: row for key, row in rows.items() if row.engine == self.engine_label}

    def _drive(self) -> None:
        engine = self._keeper.start()
        self._feeder = feeder = Feeder(engine.limits, self._feeding, self._seed_of)
        self.loaded_at = time.monotonic()
        self._loaded.set()
        try:
            while not self._run(engine, feeder):
                if self._closing.is_set() or (another := self._keeper.restart(self._stop)) is None:
                    break
                engine = another
                self._given_up += feeder.recover(engine.limits)
                if self._given_up and feeder.is_empty:
                    self._hand_over([])
            self._steps.put(None)
        finally:
            self._keeper.close()

    def _run(self, engine: Engine, feeder: Feeder) -> bool:
        """Whether the engine lived until there was no more to do, or to the stop of the run."""
        self._driver = driver = Driver(
            engine, feeder, self._next_requests, self._hand_over, self._stop, self._closing, self.feeding
        )
        try:
            driver.run(is_more=lambda: not self._fed.is_set())
        except EngineDeadError as death:
            if self._stop.is_set():
                raise
            self._keeper.bury(death, was_fruitful=driver.num_ended > 0)
            return False
        return True

    def _seed_of(self, request_id: str, slice_number: int) -> int:
        return sampling_seed(self._settings.seed, bytes.fromhex(request_id), slice_number)

    def _next_requests(self, idle: bool) -> list[Request] | None:
        """More requests: at once where there are any; an idle engine waits for them.

        None: no more. It comes when every document is collected, or after `stop`.
        """
        try:
            more = self._requests.get(block=idle)
        except Empty:
            return []
        if more is None:
            return None
        if more.ahead:
            self._ahead.release()
        return more.requests

    def _hand_over(self, slices: list[Slice]) -> None:
        """With what was given up before: another request has ended since then, so that it was not the engine."""
        slices, self._given_up = [*self._given_up, *slices], []
        started = time.monotonic()
        self._behind.acquire()
        self.collector_wait_seconds += time.monotonic() - started
        running = self.snapshot().running + len(slices)
        finished_at = (self.loaded_at or started) + self.running_seconds
        self._steps.put(Step(slices=slices, running=running, finished_at=finished_at))

    def _collect(self) -> None:
        while (step := self._steps.get()) is not None:
            engine = self.engine_label or ""
            observations = self._harvest.observations(step)
            answers = self._harvest.answers([one.output for one in step.slices if one.is_last], engine)
            partials = [self._harvest.partial(one, engine) for one in step.slices if not one.is_last]
            self.tally.add_calls(answers)
            moved = self._tasks.receive(answers)
            nested = [row for row in answers if row.document_key is not None]
            self._keep(moved.rows, [*partials, *nested, *moved.rows])
            if moved.requests:
                self._ask(moved.requests, ahead=False)
            self._observe(observations)
            self._behind.release()
            if self._fed.is_set() and self._tasks.num_open == 0:
                self._requests.put(None)
        self._collected.set()

    def _keep(self, documents: Sequence[Summary], rows: Sequence[Summary]) -> None:
        """Count finished documents, and hand rows to the store."""
        with self._keeping:
            self.tally.add_documents(documents)
            if rows:
                self._committer.add(rows)
