"""Options that several commands share. Those that belong together reach a command as one record."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from batchrun.cli.manner import LOG_FORMAT_VARIABLE
from batchrun.records import Preference
from batchrun.workspace import Workspace, find_workspace

if TYPE_CHECKING:
    from batchrun.job import Job
    from batchrun.preparation import CorpusInput

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class JobChoice:
    """Which job is meant; the fields are called as in `batchrun.api`."""

    job: str | None
    name: str | None
    seed: int

    def open(self, home: str | None) -> "Job":
        """The job of the spec. Raises BatchrunError."""
        from batchrun.defaults import spec_path
        from batchrun.job import open_job

        space = workspace(home)
        return open_job(space, spec_path(space, self.job), name=self.name, seed=self.seed)


@dataclass(frozen=True, kw_only=True)
class CorpusChoice:
    """What of a corpus is read; the fields are called as in `batchrun.api`."""

    id_column: str | None
    text_column: str | None
    keep_columns: tuple[str, ...]
    limit: int | None

    def find(self, job: "Job", paths: Sequence[str]) -> "CorpusInput":
        """The corpus at `paths`. Raises BatchrunError."""
        from batchrun.corpus.corpus import ColumnWishes
        from batchrun.preparation import find_corpus

        wishes = ColumnWishes(text=self.text_column, id=self.id_column, kept=self.keep_columns)
        return find_corpus(job, list(paths), wishes, self.limit)


@dataclass(frozen=True, kw_only=True)
class WindowChoice:
    """When to end, and what is done before; the fields are called as in `batchrun.api`."""

    deadline: str | None
    time_budget: str | None
    prefer: str | None


def chained(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def collected(record: type, parameter: str, *options: Callable[[F], F]) -> Callable[[F], F]:
    """`options`, whose values are the fields of `record` and reach the command as its argument `parameter`."""
    names = [field.name for field in fields(record)]

    def decorate(function: F) -> F:
        @wraps(function)
        def with_record(**given: Any) -> Any:
            values = {name: given.pop(name) for name in names}
            return function(**given, **{parameter: record(**values)})

        return chained(*options)(cast("F", with_record))

    return decorate


def is_path(word: str) -> bool:
    """Whether it is a file, a folder or a pattern, or is meant as one, and no id of a job or a run: these may have a dot."""
    from batchrun.corpus.formats import format_by_suffix

    return os.path.lexists(word) or not set(word).isdisjoint("*?[/") or format_by_suffix(word) is not None


def split_columns(given: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in given.split(",") if name.strip()) if given else ()


home = click.option(
    "--home",
    metavar="DIR",
    help="The workspace; default: BATCHRUN_HOME, or the nearest folder upwards with jobs/.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="End with one JSON object on standard output.")
quiet = click.option("--quiet", "-q", is_flag=True, help="Say nothing on success.")
job_spec = collected(
    JobChoice,
    "job",
    click.option(
        "--job",
        metavar="SPEC",
        help="The job spec; default: jobs/summarize.toml of the workspace.",
    ),
    click.option("--name", metavar="N", help="Name of the job; default: the spec's, or its file's stem."),
    click.option(
        "--seed",
        type=click.IntRange(-(1 << 63), (1 << 63) - 1),
        default=0,
        show_default=True,
        help="Seed of the summaries.",
    ),
)
corpus = collected(
    CorpusChoice,
    "columns",
    click.option(
        "--id-column", metavar="COL", help="Column of ids; default: id or doc_id, else row numbers."
    ),
    click.option("--text-column", metavar="COL", help="Column of texts; default: text, body or content."),
    click.option(
        "--keep-columns",
        metavar="A,B",
        callback=lambda _context, _option, given: split_columns(given),
        help="Columns of the corpus to carry into the output.",
    ),
    click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N rows."),
)
shard = click.option(
    "--shard",
    metavar="I/N",
    help="Only share I of N, by the texts' hashes: for N runs beside each other. Each reads all of the corpus to plan, "
    "and publishes nothing: batchrun results joins them.",
)
max_error_rate = click.option(
    "--max-error-rate",
    type=click.FloatRange(0, 1),
    default=0.01,
    show_default=True,
    metavar="R",
    help="Share of failed rows from which the exit code is 3.",
)
time_budget = click.option("--time-budget", metavar="D", help="End in good order after 4h, 90m, 1h30m.")
window_end = chained(
    click.option(
        "--deadline",
        metavar="T",
        help="End in good order by then: 06:00, local time, or a moment with its zone. The rest stays pending.",
    ),
    time_budget,
)
window = collected(
    WindowChoice,
    "window",
    window_end,
    click.option(
        "--prefer",
        type=click.Choice([preference.value for preference in Preference]),
        help="What goes first; default: what begins alike together.",
    ),
)
files = chained(
    click.option(
        "--summary-file",
        metavar="FILE",
        help="Write the JSON object of --json there too, whatever the end.",
    ),
    click.option(
        "--metrics-file", metavar="FILE", help="Keep the batch metrics there in Prometheus' text format."
    ),
)
log_format = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    envvar=LOG_FORMAT_VARIABLE,
    show_envvar=True,
    help="json: each line of the log an object.",
)


def _finite(_context: click.Context, _option: click.Parameter, given: float | None) -> float | None:
    if given is not None and not math.isfinite(given):
        raise click.BadParameter(f"{given} is no price.")
    return given


price = click.option(
    "--price",
    type=click.FloatRange(min=0),
    callback=_finite,
    metavar="P",
    help="Of an hour of one GPU, or of the machine where none computes; in any currency.",
)
accept_engine = click.option(
    "--accept-engine", is_flag=True, help="Go on although this machine resolves engine or dtype differently."
)


def workspace(home_option: str | None) -> Workspace:
    return find_workspace(home_option)
