"""SIGKILL before and after each operation on a file, each in a process of its own, and what comes after."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from tests.crashes.children import KILLED, in_child
from tests.crashes.disk import Observer, Operation, observed
from tests.crashes.scenes import Stage, check_collect, check_submit, collect, submit

BEFORE, AFTER = "before", "after"


@dataclass(frozen=True, order=True)
class Point:
    """The `number`-th time (from 1) that an operation of this name is about to be made, or is made."""

    name: str
    when: str
    number: int

    def __str__(self) -> str:
        return f"{self.when} {self.name}, {self.number}."


class _Counting(Observer):
    """How often each named operation is made."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.counts: Counter[str] = Counter()

    def before(self, operation: Operation) -> None:
        self.counts[operation.named(self._home)] += 1


class _Killing(_Counting):
    """Ends this process at a point."""

    def __init__(self, home: Path, point: Point) -> None:
        super().__init__(home)
        self._point = point

    def before(self, operation: Operation) -> None:
        super().before(operation)
        self._end(operation, BEFORE)

    def after(self, operation: Operation) -> None:
        self._end(operation, AFTER)

    def _end(self, operation: Operation, when: str) -> None:
        name = operation.named(self._home)
        if self._point == Point(name, when, self.counts[name]):
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What is done in a stage, and what must hold after any crash of it."""

    name: str
    act: Callable[[Stage], int]
    check: Callable[[Stage], None]


def scenes(stage: Stage) -> Iterator[Scene]:
    """Of a submit from planning to its end; then, in a workspace where that was done, of a collection."""
    assert 0 == in_child(partial(submit, stage), stage.log)
    expected = pq.read_table(stage.output)
    yield Scene(name="submit", act=submit, check=partial(check_submit, expected=expected))
    stage.reset()
    assert 0 == in_child(partial(submit, stage), stage.log)
    stage.old.unlink()
    stage.keep()
    yield Scene(name="gc", act=collect, check=partial(check_collect, expected=expected))


def kill_everywhere(stage: Stage, every: int) -> int:
    """Kill at every point, or at one of `every`; print how often at each name; returns the number of kills.

    Raises AssertionError, naming the points, where something does not hold after a crash.
    """
    kills, wrong = 0, []
    for scene in scenes(stage):
        killed: Counter[tuple[str, str]] = Counter()
        for point in list(_points(stage, scene))[::every]:
            try:
                killed[point.name, point.when] += _kill_at(stage, scene, point)
            except AssertionError as error:
                wrong.append(f"{scene.name}: after a crash {point}: {error}")
        for name in sorted({name for name, _ in killed}):
            print(f"{scene.name:6}  {name:60} before {killed[name, BEFORE]:3}  after {killed[name, AFTER]:3}")
        kills += killed.total()
    assert not wrong, "\n".join(wrong)
    return kills


def _points(stage: Stage, scene: Scene) -> Iterator[Point]:
    """Of each name the first occurrences, one in the middle and the last."""
    stage.reset()
    for name, number in sorted(in_child(partial(_count, stage, scene), stage.log).items()):
        for occurrence in sorted({1, 2, number // 2, number} & set(range(1, number + 1))):
            yield from (Point(name, when, occurrence) for when in (BEFORE, AFTER))


def _count(stage: Stage, scene: Scene) -> dict[str, int]:
    counting = _Counting(stage.home)
    with observed(stage.home, counting):
        assert 0 == scene.act(stage)
    return dict(counting.counts)


def _kill_at(stage: Stage, scene: Scene, point: Point) -> bool:
    """Whether the point was reached; what comes after it holds in any case."""

    def act() -> int:
        with observed(stage.home, _Killing(stage.home, point)):
            return scene.act(stage)

    stage.reset()
    ended = in_child(act, stage.log)
    assert ended in (KILLED, 0), f"it ended with {ended}"
    assert KILLED != in_child(lambda: scene.check(stage), stage.log), "what came after it was killed"
    return bool(ended == KILLED)
