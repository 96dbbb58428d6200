"""Times for a person: how long something takes, and since when it goes on."""

from datetime import UTC, datetime

FINE_BELOW = 90
"""Seconds, or minutes, up to which a duration is said in that unit."""
SECONDS_BELOW = 600
"""Of a duration; from there on it is in whole minutes."""


def duration(seconds: float) -> str:
    """`45 s`, `1 min 34 s`, `12 min`, `3 h 05 min`."""
    if seconds < FINE_BELOW:
        return f"{seconds:.0f} s"
    if seconds < SECONDS_BELOW - 0.5:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < FINE_BELOW else f"{minutes // 60} h {minutes % 60:02d} min"


def local_time(moment: str, now: datetime | None = None) -> str:
    """An ISO moment as this machine's clock shows it, `22:00:03`, with its date where that is not today's.

    What is no moment is told as it is.
    """
    try:
        local = datetime.fromisoformat(moment).astimezone()
    except ValueError:
        return moment
    is_today = local.date() == (now or datetime.now(UTC)).astimezone().date()
    return f"{local:%H:%M:%S}" if is_today else f"{local:%Y-%m-%d %H:%M}"


def seconds_since(moment: str, now: datetime | None = None) -> float:
    """Of an ISO moment with its zone; 0 where it is still to come, by a clock that differs, or is no moment."""
    try:
        passed = (now or datetime.now(UTC)) - datetime.fromisoformat(moment)
    except (ValueError, TypeError):
        return 0.0
    return max(0.0, passed.total_seconds())


def since(moment: str, now: datetime | None = None) -> str:
    """`since 22:00:03, 62 min ago`."""
    return f"since {local_time(moment, now)}, {duration(seconds_since(moment, now))} ago"
