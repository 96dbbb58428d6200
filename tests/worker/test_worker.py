"""The worker, with an engine that the test holds in its hand."""

import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from batchrun.engines.base import EngineLimits, EngineSnapshot
from batchrun.records import Completion, Document, ErrorType, FinishReason, MemoStatus, Part, Request, Summary
from batchrun.worker.calls import sampling_seed
from batchrun.worker.committer import Committer
from batchrun.worker.tasks import Tasks
from batchrun.worker.worker import Worker
from tests.worker.letters import SETTINGS

LIMITS = EngineLimits(
    max_model_len=100, kv_tokens=1600, block_size=16, max_num_seqs=4, max_num_batched_tokens=64
)


class HeldEngine:
    """Finishes one request a step, the newest first: completions never come in the order of requests."""

    limits = LIMITS
    label = "held"

    def __init__(self) -> None:
        self.process_ids: list[int] = []
        self.requests: list[Request] = []
        self.most = 0
        self.closed = threading.Event()
        self.release = threading.Event()
        self.release.set()

    def add(self, request: Request) -> None:
        self.requests.append(request)
        self.most = max(self.most, len(self.requests))

    def step(self) -> list[Completion]:
        self.release.wait()
        return [self.complete(self.requests.pop())] if self.requests else []

    def complete(self, request: Request) -> Completion:
        start, end = request.document_span
        return Completion(
            request_id=request.request_id,
            token_ids=request.prompt_token_ids[start:end],
            finish_reason=FinishReason.STOP,
            input_tokens=len(request.prompt_token_ids),
        )

    def abort(self, request_ids: Collection[str]) -> None:
        self.requests = [request for request in self.requests if request.request_id not in request_ids]

    def has_unfinished(self) -> bool:
        return bool(self.requests)

    def snapshot(self) -> EngineSnapshot:
        return EngineSnapshot(running=len(self.requests))

    def close(self) -> None:
        self.closed.set()


def documents(number: int, batch: int = 7) -> Iterator[list[Document]]:
    every = [Document(key=i.to_bytes(16, "big"), token_ids=[i % 26]) for i in range(number)]
    for start in range(0, number, batch):
        yield every[start : start + batch]


def make_worker(engine: HeldEngine, number: int, rows: list[Summary]) -> Worker:
    return Worker(
        documents=documents(number),
        settings=SETTINGS,
        recall=lambda _: {},
        start_engine=lambda _: engine,
        commit=rows.extend,
    )


def finish(worker: Worker) -> None:
    deadline = time.monotonic() + 30
    while worker.is_running:
        worker.wait(0.05)
        assert time.monotonic() < deadline, "the worker does not come to its end"
    worker.drain()
    assert worker.close(5)


def test_every_document_is_matched_to_its_own_completion() -> None:
    """By id, never by position; the engine is closed; the tally is right."""
    engine, rows = HeldEngine(), []  # type: tuple[HeldEngine, list[Summary]]
    worker = make_worker(engine, 100, rows)
    worker.start()
    finish(worker)
    assert {i.to_bytes(16, "big"): chr(97 + i % 26) for i in range(100)} == {
        row.key: row.summary for row in rows
    }
    assert [100, 0, 400, 100] == [
        worker.tally.ok,
        worker.tally.failed,
        worker.tally.input_tokens,
        worker.tally.output_tokens,
    ]
    assert engine.closed.is_set()


def test_an_output_that_another_engine_began_is_begun_again() -> None:
    """Its tokens go on in this one where it is the same engine, version and dtype, and nowhere else."""
    seen: list[Request] = []

    class WatchedEngine(HeldEngine):
        def add(self, request: Request) -> None:
            seen.append(request)
            super().add(request)

    def begun(keys: Sequence[bytes]) -> dict[bytes, Summary]:
        return {
            key: Summary(
                key=key,
                status=MemoStatus.PARTIAL,
                token_ids=(7,),
                engine="held" if key[-1] % 2 else "held, an older one",
            )
            for key in keys
        }

    worker = Worker(
        documents=documents(10),
        settings=SETTINGS,
        recall=lambda _: {},
        begun=begun,
        start_engine=lambda _: WatchedEngine(),
        commit=lambda _: None,
    )
    worker.start()
    finish(worker)
    assert {int(one.request_id, 16): one.num_generated for one in seen} == {n: n % 2 for n in range(10)}


def test_the_window_is_bounded() -> None:
    """No more requests are in the engine than it can run and a short queue."""
    engine, rows = HeldEngine(), []  # type: tuple[HeldEngine, list[Summary]]
    worker = make_worker(engine, 500, rows)
    worker.start()
    finish(worker)
    assert LIMITS.max_num_seqs + 8 == engine.most
    assert 500 == len(rows)


def test_no_documents_is_an_end() -> None:
    """Nothing to do ends at once."""
    worker = make_worker(HeldEngine(), 0, [])
    worker.start()
    finish(worker)
    assert 0 == worker.tally.computed


def test_stop_keeps_what_came_out_while_a_step_is_long() -> None:
    """What the engine gave before is durable; what is inside a long step is given up, not waited for."""
    engine, rows = HeldEngine(), []  # type: tuple[HeldEngine, list[Summary]]
    worker = make_worker(engine, 400, rows)
    worker.start()
    while worker.tally.computed < 20:
        time.sleep(0.001)
    engine.release.clear()
    time.sleep(0.05)
    started = time.monotonic()
    worker.stop()
    worker.drain()
    assert 3 > time.monotonic() - started
    assert len(rows) == worker.tally.computed >= 20
    engine.release.set()
    worker.close(5)


def test_an_aborted_request_is_not_done_and_an_error_is_a_failed_row() -> None:
    """Aborted is not failed; failed has its reason, and one attempt more."""

    class Mixed(HeldEngine):
        def complete(self, request: Request) -> Completion:
            number = int(request.request_id, 16)
            done = super().complete(request)
            if number % 3 == 0:
                return structs.replace(done, finish_reason=FinishReason.ABORT)
            if number % 3 == 1:
                kind = ErrorType.ENGINE_REJECTED
                return structs.replace(
                    done, token_ids=[], finish_reason=FinishReason.ERROR, error_type=kind, error="no"
                )
            return done

    rows: list[Summary] = []
    worker = make_worker(Mixed(), 30, rows)
    worker.start()
    finish(worker)
    assert 20 == len(rows)
    failed = [row for row in rows if row.status is MemoStatus.FAILED]
    assert [(ErrorType.ENGINE_REJECTED, "no", 1)] * 10 == [
        (row.error_type, row.error, row.attempts) for row in failed
    ]


def test_an_engine_that_does_not_start_ends_the_run() -> None:
    """Its error is raised by `drain`, whatever the feeder does meanwhile."""

    def broken(_: float) -> HeldEngine:
        raise RuntimeError("no memory")

    worker = make_worker(HeldEngine(), 1000, [])
    worker._keeper._start = broken
    worker.start()
    while worker.is_running:
        worker.wait(0.05)
    with pytest.raises(RuntimeError, match="no memory"):
        worker.drain()


def test_a_disk_that_fails_ends_the_run() -> None:
    """Nothing is caught and carried on where results are saved."""

    def full(_: Sequence[Summary]) -> None:
        raise OSError(28, "No space left on device")

    worker = make_worker(HeldEngine(), 20, [])
    worker._committer = Committer(full)
    worker.start()
    while worker.is_running:
        worker.wait(0.05)
    with pytest.raises(OSError, match="No space left"):
        worker.drain()
    worker.close(5)


def test_a_completion_that_nobody_asked_for_is_fatal() -> None:
    """An engine that gives one output too many is not believed."""
    tasks = Tasks(SETTINGS, lambda _: {})
    with pytest.raises(KeyError):
        tasks.call("x")
    with pytest.raises(KeyError):
        tasks.receive([Summary(key=bytes(16), status=MemoStatus.OK)])


def test_the_committer_commits_in_order_and_within_its_interval() -> None:
    """Rows are durable at most about a second after they were added, and all of them at the end."""
    committed: list[Summary] = []
    committer = Committer(committed.extend)
    one = Summary(key=bytes(16), status=MemoStatus.OK, summary="one")
    committer.add([one])
    deadline = time.monotonic() + 10
    while not committed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [one] == committed
    two = structs.replace(one, summary="two")
    committer.add([two])
    committer.close()
    assert [one, two] == committed


def test_the_sampling_seed_depends_on_seed_key_and_slice_alone() -> None:
    """Known values, so that a resumed job never samples another stream; all fit 63 bits."""
    key = bytes(range(16))
    seeds = [
        sampling_seed(0, key, 0),
        sampling_seed(1, key, 0),
        sampling_seed(0, key[::-1], 0),
        sampling_seed(0, key, 1),
    ]
    assert 4 == len(set(seeds))
    assert all(0 <= seed < 1 << 63 for seed in seeds)
    assert SEED_OF_FIRST == seeds[0]


SEED_OF_FIRST = 5361342266603975588


def long_document(number: int, *parts: int) -> Document:
    return Document(
        key=number.to_bytes(16, "big"),
        token_ids=list(parts),
        parts=tuple(Part(key=bytes([part]) * 16, token_ids=[part]) for part in parts),
        num_tokens=len(parts),
    )


def rows_of(requests: Sequence[Request], tasks: Tasks, status: MemoStatus = MemoStatus.OK) -> list[Summary]:
    return [
        Summary(key=call.key, status=status, summary="s", document_key=call.document_key)
        for call in (tasks.call(request.request_id) for request in requests)
    ]


LONG = replace(SETTINGS, max_model_len=2000)


def test_a_part_that_two_documents_have_is_asked_for_once() -> None:
    """At the same time, and afterwards; both documents are finished by it."""
    tasks = Tasks(LONG, lambda _: {})
    moved = tasks.open([long_document(100, 1, 2), long_document(101, 1, 3)])
    assert 3 == len(moved.requests)
    moved = tasks.receive(rows_of(moved.requests, tasks))
    tasks.receive(rows_of(moved.requests, tasks))
    assert 0 == tasks.num_open
    later = tasks.open([long_document(102, 1, 4)])
    assert [bytes([4]) * 16] == [tasks.call(request.request_id).key for request in later.requests]


@pytest.mark.parametrize("aborted", [[0], [1], [0, 1]])
def test_an_aborted_part_leaves_its_document_unattempted(aborted: list[int]) -> None:
    """Whichever part it was, and however many; the other's row is kept, and nothing waits for ever."""
    tasks = Tasks(LONG, lambda _: {})
    requests = tasks.open([long_document(100, 1, 2)]).requests
    for number in aborted:
        tasks.drop(requests[number].request_id)
    kept = [request for number, request in enumerate(requests) if number not in aborted]
    assert [] == tasks.receive(rows_of(kept, tasks)).rows
    assert 0 == tasks.num_open


def test_what_an_earlier_run_finished_is_not_asked_for() -> None:
    """Down to the whole document; its tokens count as recalled."""
    first = Tasks(LONG, lambda _: {})
    finished: dict[bytes, Summary] = {}
    moved = first.open([long_document(100, 1, 2)])
    while moved.requests:
        rows = [structs.replace(row, input_tokens=7) for row in rows_of(moved.requests, first)]
        finished |= {row.key: row for row in rows}
        moved = first.receive(rows)
    tasks = Tasks(LONG, lambda keys: {key: finished[key] for key in keys if key in finished})
    again = tasks.open([long_document(100, 1, 2)])
    assert [[], moved.rows] == [again.requests, again.rows]
    assert [0, 21] == [tasks.num_open, tasks.recalled_tokens]
