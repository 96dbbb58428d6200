"""How a command line asks to be answered, known before anything of it is done, and where it is wrong elsewhere."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import click

LOG_FORMAT_VARIABLE = "BATCHRUN_LOG_FORMAT"


@dataclass(frozen=True, kw_only=True)
class Manner:
    """The options that say how an end is told."""

    log_format: str = "text"
    as_json: bool = False
    summary_file: str | None = None


def manner_of(group: click.Group, arguments: Sequence[str]) -> Manner:
    """Read leniently: unknown options and values that are none are passed over. Without a command that there is,
    the environment says in which form its error is told.
    """
    place = next((place for place, word in enumerate(arguments) if not word.startswith("-")), None)
    with suppress(Exception):  # whatever is wrong there, the command itself comes to it and tells it
        named = None if place is None else group.get_command(click.Context(group), arguments[place])
        if named is not None and place is not None:
            return _read(named, arguments[place], list(arguments[place + 1 :]))
    is_json = os.environ.get(LOG_FORMAT_VARIABLE) == "json"
    return Manner(log_format="json" if is_json else "text")


def _read(command: click.Command, name: str, arguments: list[str]) -> Manner:
    context = command.make_context(
        name, arguments, resilient_parsing=True, ignore_unknown_options=True, allow_extra_args=True
    )
    found = {name: value for name, value in context.params.items() if value is not None}
    return Manner(**{name: found[name] for name in Manner.__dataclass_fields__ if name in found})
