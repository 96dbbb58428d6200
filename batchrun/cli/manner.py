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
    named = None if place is None else arguments[place]
    command = None if named is None else group.get_command(click.Context(group), named)
    if command is None or place is None:
        is_json = os.environ.get(LOG_FORMAT_VARIABLE) == "json"
        return Manner(log_format="json" if is_json else "text")
    with suppress(click.ClickException):
        context = command.make_context(
            named,
            list(arguments[place + 1 :]),
            resilient_parsing=True,
            ignore_unknown_options=True,
            allow_extra_args=True,
        )
        found = {name: value for name, value in context.params.items() if value is not None}
        return Manner(**{name: found[name] for name in Manner.__dataclass_fields__ if name in found})
    return Manner()
