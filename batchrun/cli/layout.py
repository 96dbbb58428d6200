"""Text to the width of the terminal: prose that wraps, and tables that are set in several where they are too wide."""

import re
from collections.abc import Collection, Iterator, Sequence
from shutil import get_terminal_size
from textwrap import wrap

MOST_PROSE = 110
"""Columns of a line of prose, and of all without a terminal."""
GAP = "  "
_UNBOUNDED = 1 << 16

_COMMAND = re.compile(r"`[^`\n]+`|\bbatchrun [a-z]+\b")
_GLUE = "\N{NO-BREAK SPACE}"

Row = Sequence[str]


def columns(most: int = _UNBOUNDED) -> int:
    """Of the terminal, or as COLUMNS says, and no more than `most`; that many without either."""
    return min(most, get_terminal_size((most, 24)).columns)


def wrapped(text: str, first: str = "", rest: str | None = None) -> list[str]:
    """Lines of prose; the first begins with `first`, the others with `rest`, or as deep as it. A command that fits a
    line is whole, to be copied.
    """
    later, room = " " * len(first) if rest is None else rest, columns(MOST_PROSE)
    fitting = room - max(len(first), len(later))
    lines = wrap(
        _COMMAND.sub(lambda found: _glued(found[0], fitting), text),
        room,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_GLUE, " ") for line in lines]


def _glued(command: str, room: int) -> str:
    return command.replace(" ", _GLUE) if len(command) <= room else command


def table(
    rows: Sequence[Row], *, num_keys: int = 1, left: Collection[int] = (0,), titles: Sequence[str] = ()
) -> list[str]:
    """Rows under their head. Without a terminal each is a line. In a terminal that is too narrow the columns come in
    several tables, each behind the first `num_keys`; where these take half of it, each row comes as text,
    behind its title, or its keys.
    """
    room = columns()
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    keys = list(range(num_keys))
    groups = list(_groups(widths, num_keys, room))
    if len(groups) > 1 and 2 * _width(widths, keys) >= room:
        return _stacked(rows, num_keys, titles)
    lines = []
    for group in groups:
        lines += [_line(row, widths, [*keys, *group], left) for row in rows]
    return lines


def _groups(widths: Sequence[int], num_keys: int, room: int) -> Iterator[list[int]]:
    """Columns beside the keys, as many as there is room for; one at least."""
    group: list[int] = []
    for place in range(num_keys, len(widths)):
        if group and _width(widths, [*range(num_keys), *group, place]) > room:
            yield group
            group = []
        group.append(place)
    yield group


def _width(widths: Sequence[int], places: Sequence[int]) -> int:
    return sum(widths[place] for place in places) + len(GAP) * (len(places) - 1)


def _line(row: Row, widths: Sequence[int], places: Sequence[int], left: Collection[int]) -> str:
    cells = (
        row[place].ljust(widths[place]) if place in left else row[place].rjust(widths[place])
        for place in places
    )
    return GAP.join(cells).rstrip()


def _stacked(rows: Sequence[Row], num_keys: int, titles: Sequence[str]) -> list[str]:
    head, *others = rows
    lines = [] if titles else wrapped(head[0])
    first = num_keys if titles else 1
    for title, row in zip(titles or [row[0] for row in others], others, strict=True):
        text = ", ".join(
            f"{name} {cell}" for name, cell in zip(head[first:], row[first:], strict=True) if cell
        )
        depth = len(title) - len(title.lstrip())
        lines += wrapped(f"{title.strip()}: {text}", " " * depth, " " * (depth + 2))
    return lines
