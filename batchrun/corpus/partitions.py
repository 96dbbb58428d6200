"""Hive partitions: the `key=value` folders of a path are columns of the files below them."""

import re

NULL = "__HIVE_DEFAULT_PARTITION__"


def partitions(path: str) -> dict[str, str | None]:
    """The partitions in the folders of a path, as strings exactly as written but for `%` escapes.

    A value is never made a number: `007` and `2024-01` stay what they are. Where two folders name one
    key, the inner one counts.
    """
    found: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        key, equals, value = folder.partition("=")
        if key and equals:
            found[_unescaped(key)] = None if value == NULL else _unescaped(value)
    return found


def _unescaped(text: str) -> str:
    """With each run of `%XX` decoded as UTF-8, and left as written where it is none; `+` is a plus."""
    return re.sub(r"(?:%[0-9a-fA-F]{2})+", _decoded, text)


def _decoded(escapes: re.Match[str]) -> str:
    try:
        return bytes.fromhex(escapes[0].replace("%", "")).decode()
    except UnicodeDecodeError:
        return escapes[0]
