"""The window of time in which a run may work: until a moment of the wall clock, for a time, or both.

A moment is compared with the wall clock each time anew, so that a clock that is set while the run goes on moves
the end with it; a time is counted by the monotonic clock.
"""

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from batchrun.errors import UsageError, WindowOverError

OVER_FOR = timedelta(hours=12)
"""A clock time that passed less than this ago means that the window is over; one longer ago is tomorrow's."""
PUBLISHING_SECONDS, PUBLISHED_ROWS_PER_SECOND = 2.0, 20_000
"""What publication is given. On two cores 1,000,000 rows take 7 s (`python -m benchmarks.overhead`), so that there is
room for a slower disk and for compaction before it.
"""
_CLOCK_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
_NUMBER = r"(\d{1,9}(?:\.\d+)?)"
_DURATION = re.compile(f"(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?")
_SECONDS = re.compile(_NUMBER)
_UNIT_SECONDS = (86400, 3600, 60, 1)
DEADLINE, TIME_BUDGET = "deadline", "time_budget"
"""Stop reasons of a run whose window is over."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """`deadline` has a time zone; `budget` counts seconds from `started` of time.monotonic(). None: no end."""

    deadline: datetime | None = None
    budget: float | None = None
    started: float = field(default_factory=time.monotonic)
    now: Callable[[], datetime] = field(default=lambda: datetime.now().astimezone(), repr=False)

    @property
    def is_bounded(self) -> bool:
        return self.deadline is not None or self.budget is not None

    def seconds_left(self) -> float:
        """Until the first of its ends; infinity without one, negative when it is over."""
        return min(self._until_deadline(), self._within_budget())

    def seconds_to_work(self, num_rows: int) -> float:
        """Until publication of so many rows must begin."""
        return self.seconds_left() - PUBLISHING_SECONDS - num_rows / PUBLISHED_ROWS_PER_SECOND

    @property
    def stop_reason(self) -> str:
        """The end that comes, or came, first."""
        return DEADLINE if self._until_deadline() <= self._within_budget() else TIME_BUDGET

    @property
    def text(self) -> str:
        """When it ends, for a person."""
        if self.stop_reason == DEADLINE and self.deadline is not None:
            return f"{self.deadline:%Y-%m-%d %H:%M %Z}"
        return f"after {self.budget or 0:,.0f} s"

    @property
    def ends_at(self) -> str | None:
        """The moment of its end as the clock stands now, ISO 8601 to the second; None without one."""
        try:
            end = self.now() + timedelta(seconds=self.seconds_left())
        except OverflowError:  # infinity, or a budget of millennia
            return None
        return end.isoformat(timespec="seconds")

    def require_open(self) -> None:
        """Raise WindowOverError where it is over."""
        self._require(f"the window is over: it ended {self.text}", "Submit again in the next window")

    def require_open_to_plan(self, num_rows: int) -> None:
        """Raise WindowOverError where it is over before a corpus, of which so many rows are read, is planned."""
        self._require(
            f"the window is over: it ended {self.text}, when {num_rows:,} rows were planned",
            "Plan before the window begins, with `batchrun plan`: submit takes the plan over. Until then this corpus has "
            "no plan, and `results` nothing to publish",
        )

    def _require(self, reason: str, hint: str) -> None:
        if self.seconds_left() <= 0:
            raise WindowOverError(reason, f"{hint}; what is finished is kept.", self.stop_reason)

    def _until_deadline(self) -> float:
        return math.inf if self.deadline is None else (self.deadline - self.now()).total_seconds()

    def _within_budget(self) -> float:
        return math.inf if self.budget is None else self.started + self.budget - time.monotonic()


def parse_deadline(given: str, now: datetime, *, over_for: timedelta = OVER_FOR) -> datetime:
    """`06:00`, of the time zone of `now`, or an ISO timestamp with a zone.

    A clock time is the next one, unless the last is less than `over_for` ago: then it is that. Raises UsageError.
    """
    if clock := _CLOCK_TIME.fullmatch(given.strip()):
        hour, minute, second = (int(part or 0) for part in clock.groups())
        return _clock_time(now, hour, minute, second, over_for)
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        problem = "is no time" if moment is None else "has no time zone"
        example = now.replace(hour=6, minute=0).isoformat(timespec="minutes")
        raise UsageError(
            f"--deadline {given!r} {problem}",
            f"Give a local clock time, as 06:00, or a moment with its zone, as {example}.",
        )
    return moment


def _clock_time(now: datetime, hour: int, minute: int, second: int, over_for: timedelta) -> datetime:
    naive = now.replace(tzinfo=None)
    today = naive.replace(hour=hour, minute=minute, second=second, microsecond=0)
    days = (today + timedelta(days=number) for number in (-1, 0, 1))
    *_, last = (moment for moment in (_in_zone(day, now) for day in days) if moment <= now)
    return last if now - last < over_for else _in_zone(last.replace(tzinfo=None) + timedelta(days=1), now)


def window_of(deadline: str | None, time_budget: str | None, *, over_for: timedelta = OVER_FOR) -> Window:
    """Of the two options, from now on; it may be over. Raises UsageError."""
    return Window(
        deadline=None
        if deadline is None
        else parse_deadline(deadline, datetime.now().astimezone(), over_for=over_for),
        budget=None if time_budget is None else parse_duration(time_budget),
    )


def window_to_plan(deadline: str | None, time_budget: str | None) -> Window:
    """One that is to come: a clock time is always the next. Raises UsageError where there is no time in it."""
    window = window_of(deadline, time_budget, over_for=timedelta(0))
    if window.seconds_left() <= 0:
        raise UsageError(
            f"there is no time in the window to plan for: it ends {window.text}",
            "Give one that is to come: --deadline 06:00, or its length: --time-budget 8h.",
        )
    return window


def _in_zone(naive: datetime, now: datetime) -> datetime:
    """A local time in the zone of `now`; in the machine's own, with the offset of that day."""
    if isinstance(now.tzinfo, ZoneInfo):
        return naive.replace(tzinfo=now.tzinfo)
    return naive.astimezone()


def parse_duration(given: str) -> float:
    """`4h`, `90m`, `1h30m`, `45s` or seconds, in seconds. Raises UsageError."""
    text = given.replace(" ", "").lower()
    if _SECONDS.fullmatch(text):
        return float(text)
    found = _DURATION.fullmatch(text)
    parts = found.groups() if found else (None,)
    if not any(parts):
        raise UsageError(
            f"--time-budget {given!r} is no time", "Give hours, minutes or seconds: 4h, 90m, 1h30m."
        )
    return sum(float(part) * unit for part, unit in zip(parts, _UNIT_SECONDS, strict=True) if part)
