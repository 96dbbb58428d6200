"""Engines that die: what was in them is computed again, and what kills them is given up."""

from collections.abc import Callable

import pytest

from batchrun.engines.base import EngineDeadError
from batchrun.errors import EngineUnavailableError
from batchrun.records import Completion, ErrorType, MemoStatus, Summary
from batchrun.worker.engine_keeper import LIVES, MAX_FRUITLESS, EngineKeeper
from batchrun.worker.worker import Worker
from tests.worker.letters import SETTINGS
from tests.worker.test_worker import HeldEngine, documents, finish


class Mortal(HeldEngine):
    """Dies in a step where `kills` says so of the request ids in it."""

    def __init__(self, kills: Callable[[list[str]], bool], *, is_out_of_memory: bool = False) -> None:
        super().__init__()
        self._kills = kills
        self._is_out_of_memory = is_out_of_memory

    def step(self) -> list[Completion]:
        if self._kills([request.request_id for request in self.requests]):
            raise EngineDeadError("killed", is_out_of_memory=self._is_out_of_memory)
        return super().step()


def name(number: int) -> str:
    return number.to_bytes(16, "big").hex()


def run(
    kills: Callable[[list[str]], bool], number: int, *, is_out_of_memory: bool = False, refusals: int = 0
) -> tuple[Worker, list[Summary], list[Mortal], list[float]]:
    """A worker that is started on documents; its rows, engines, and the shares that they were started with."""
    rows: list[Summary] = []
    engines: list[Mortal] = []
    shares: list[float] = []

    def start(share: float) -> Mortal:
        shares.append(share)
        if engines and len(shares) <= 1 + refusals:
            raise EngineUnavailableError("no memory", "Wait.")
        engines.append(Mortal(kills, is_out_of_memory=is_out_of_memory))
        return engines[-1]

    worker = Worker(
        documents=documents(number),
        settings=SETTINGS,
        recall=lambda _: {},
        start_engine=start,
        commit=rows.extend,
    )
    worker.start()
    return worker, rows, engines, shares


def once(number: int) -> Callable[[list[str]], bool]:
    """Death at the first step with that request in it."""
    seen: list[str] = []

    def kills(requests: list[str]) -> bool:
        if seen or name(number) not in requests:
            return False
        seen.append(name(number))
        return True

    return kills


def test_a_death_costs_no_row_and_no_attempt() -> None:
    """The engine is started again; every document has its row once, and counts as read once."""
    worker, rows, engines, shares = run(once(30), 100)
    finish(worker)
    assert 100 == len({row.key for row in rows}) == len(rows)
    assert {(MemoStatus.OK, 0)} == {(row.status, row.attempts) for row in rows}
    assert (["killed"], [1.0, 1.0]) == (worker.engine_deaths, shares)
    assert all(engine.closed.is_set() for engine in engines)
    assert 400 == worker.num_admitted_tokens


def test_what_is_in_the_engine_at_every_death_is_given_up_after_the_third() -> None:
    """After the second it runs alone, so that its neighbours live; it is a failure of a kind that is tried again."""
    alone: list[list[str]] = []

    def kills(requests: list[str]) -> bool:
        if name(30) in requests:
            alone.append(requests)
        return name(30) in requests

    worker, rows, _, shares = run(kills, 100)
    finish(worker)
    [failed] = [row for row in rows if row.status is not MemoStatus.OK]
    assert ((30).to_bytes(16, "big"), ErrorType.ENGINE_CRASH, 1) == (
        failed.key,
        failed.error_type,
        failed.attempts,
    )
    assert "died 3 times" in (failed.error or "")
    assert 100 == len(rows)
    assert 4 == len(shares)
    assert [name(30)] == alone[-1]


def test_what_kills_is_given_up_where_nothing_else_is_left() -> None:
    """No request ends between the deaths, and none is left that could."""
    worker, rows, _, _ = run(lambda requests: bool({name(0), name(1)} & set(requests)), 2)
    finish(worker)
    assert [MemoStatus.FAILED] * 2 == [row.status for row in rows]


def test_two_that_kill_are_both_given_up() -> None:
    """Each with nothing beside it at last."""
    worker, rows, _, _ = run(lambda requests: bool({name(30), name(31)} & set(requests)), 60)
    finish(worker)
    failed = {int.from_bytes(row.key, "big") for row in rows if row.status is MemoStatus.FAILED}
    assert {30, 31} == failed
    assert 60 == len(rows)


def test_an_engine_that_dies_at_once_each_time_ends_the_run() -> None:
    """What was finished is durable, what was in flight has no row, and its error is raised."""
    seen: list[str] = []

    def kills(requests: list[str]) -> bool:
        seen.append(requests[-1])
        return len(seen) > 20

    worker, rows, _, shares = run(kills, 100)
    while worker.is_running:
        worker.wait(0.05)
    with pytest.raises(EngineDeadError, match="killed"):
        worker.drain()
    assert worker.close(5)
    assert {MemoStatus.OK} == {row.status for row in rows}
    assert (20, MAX_FRUITLESS) == (len(rows), len(shares) - 1)


def test_after_a_want_of_memory_there_are_half_as_many_sequences() -> None:
    worker, rows, _, shares = run(once(30), 60, is_out_of_memory=True)
    finish(worker)
    assert [1.0, 0.5] == shares
    assert 60 == len(rows)


def test_an_engine_that_does_not_start_again_at_once_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of one that was killed is not free at once."""
    monkeypatch.setattr("batchrun.worker.engine_keeper.PAUSE_SECONDS", 0.01)
    worker, rows, engines, shares = run(once(30), 60, refusals=3)
    finish(worker)
    assert (60, 5, 2) == (len(rows), len(shares), len(engines))


def test_a_death_while_the_run_closes_starts_nothing() -> None:
    """What was in the engine is unattempted, and the run ends."""
    kills: list[str] = []
    worker, rows, _, shares = run(lambda requests: bool(kills), 2000)
    while worker.tally.computed < 20:
        pass
    kills.append("now")
    worker.finish()
    finish(worker)
    assert [1.0] == shares
    assert {MemoStatus.OK} == {row.status for row in rows}


def live(lives: list[tuple[float, float]]) -> EngineKeeper:
    """A keeper whose engines take seconds to load, end requests for seconds, and die."""
    now = [0.0]

    def start(_: float) -> HeldEngine:
        now[0] += lives[len(keeper.deaths)][0]
        return HeldEngine()

    keeper = EngineKeeper(start, lambda: now[0])
    for _, seconds in lives:
        keeper.start()
        now[0] += seconds
        keeper.bury(EngineDeadError("killed"), was_fruitful=True)
    return keeper


def test_deaths_that_are_worth_it_have_no_bound() -> None:
    """While the engines run for longer than they load; one that takes long once does not end the run."""
    lives = [(60.0, 70.0)] * 100 + [(120.0, 10.0)] + [(60.0, 70.0)] * 100
    keeper = live(lives)
    assert (201, 12120.0, 14010.0) == (len(keeper.deaths), keeper.loading.seconds, keeper.running.seconds)


def test_a_night_is_not_spent_loading() -> None:
    """Though each engine ended requests: given up at the last of as many that loaded for longer than they ran,
    however well it went before; fewer are waited for.
    """
    bad = [(60.0, 50.0)] * LIVES
    assert LIVES - 1 == len(live(bad[1:]).deaths)
    with pytest.raises(
        EngineDeadError, match=r"killed; the last 12 engines all died, and took 720 s to load for 600"
    ):
        live([(60.0, 9000.0)] * 3 + bad)


def test_what_requests_took_is_remembered_after_a_death() -> None:
    """Else nothing would be known of how long before the window's end what runs has to be finished."""
    worker, *_ = run(once(30), 31)
    finish(worker)
    assert 31 == len(worker.feeding.stays)
    assert max(worker.feeding.stays) == worker.stay_seconds


def test_the_clocks_of_engines_add_up() -> None:
    """A simulator's clock begins at 0 with each engine."""

    class Timed(Mortal):
        seconds = 0.0

        def clock(self) -> float:
            return self.seconds

        def step(self) -> list[Completion]:
            self.seconds += 1.0
            return super().step()

    kills = once(30)
    worker = Worker(
        documents=documents(100),
        settings=SETTINGS,
        recall=lambda _: {},
        start_engine=lambda _: Timed(kills),
        commit=lambda _: None,
    )
    worker.start()
    finish(worker)
    assert 101 == worker.running_seconds
    assert 1 == len(worker.engine_deaths)
