"""`batchrun compare`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from batchrun.cli import options
from batchrun.cli.compare_text import condition_text, render
from batchrun.cli.console import say
from batchrun.cli.outcome import echo_json, finish_with_error
from batchrun.errors import BatchrunError, ExitCode, UsageError
from batchrun.insight.figures import METRICS
from batchrun.storage import storage_errors

if TYPE_CHECKING:
    from batchrun.insight.comparison import Comparison

NAMES = "\n".join(
    f"  {metric.name:<26} {f'{metric.what}, {metric.unit}' if metric.unit else metric.what}"
    for metric in METRICS.values()
)


@click.command(
    short_help="two runs or two benches: what differs by more than noise",
    epilog=f"\b\nNames for --fail-if:\n{NAMES}",
)
@click.argument("a")
@click.argument("b")
@click.option(
    "--show",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    metavar="N",
    help="Summaries that changed, word by word.",
)
@click.option(
    "--fail-if",
    "conditions",
    multiple=True,
    metavar="EXPR",
    help="End with 3 where this holds; may be given several times.",
)
@options.price
@options.home
@options.as_json
@options.quiet
def command(
    a: str,
    b: str,
    show: int,
    conditions: tuple[str, ...],
    price: float | None,
    home: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Hold B against A: ids of jobs (their newest runs that computed something), ids of runs, or two files of batchrun bench.

    A difference is called better or worse where it is more than noise: figures of requests are drawn 2,000 times
    from the requests, in stretches that ran side by side and in pairs where both runs computed the same texts; fewer
    than six stretches are too few. Intervals are of 95 %; the verdict is by all figures together. Failed rows
    are a share of those with a verdict. What a figure leaves out is listed.

    \b
    --fail-if EXPR is NAME OP VALUE, where OP is >, >=, < or <=:
      ttft_p95 > 500            the value of B, in the unit of the name
      rows_failed > 0.5%        of B's rows with a verdict; without % their number
      ttft_p95 > +10%           with a sign: B against A, in percent of A
      preemptions > +100        with a sign: B less A
      ttft_p95@8K-32K > +10%    of one group; else it holds where it holds in any
    One that nothing was measured for holds, and each where no row of B has a verdict. Exit code 3: one holds.

    \b
    Examples:
      batchrun compare summarize-1f2e3d4c summarize-5a6b7c8d
      batchrun compare 20261130T2200 20261201T2200 --fail-if "rows_failed > 0.5%" --fail-if "ttft_p95 > +10%"
      batchrun compare before.bench.parquet after.bench.parquet --json
    """
    try:
        found = _compare(a, b, show, conditions, price, home)
    except (BatchrunError, OSError) as error:
        raise finish_with_error(error, as_json=as_json) from None
    code = ExitCode.TOO_MANY_FAILED if found.holding else ExitCode.COMPLETE
    if as_json:
        echo_json(_plain(found) | {"exit_code": int(code)})
    elif not quiet:
        click.echo(render(found))
    if as_json or quiet:
        for outcome in found.holding:
            say(condition_text(outcome), "text")
        if found.holding and found.b.missing:
            say(f"B is not complete: {found.b.missing}", "text")
    return code


def _compare(
    a: str, b: str, show: int, conditions: tuple[str, ...], price: float | None, home: str | None
) -> "Comparison":
    from batchrun.insight.comparison import compare_runs, with_outcomes
    from batchrun.insight.conditions import parse_condition
    from batchrun.insight.facts import run_that_computed

    parsed = [parse_condition(text) for text in conditions]
    space = options.workspace(home)
    are_files = [options.is_path(given) for given in (a, b)]
    if any(are_files) and not all(are_files):
        file, other = (a, b) if are_files[0] else (b, a)
        raise UsageError(
            f"{file} is a file and {other} is none",
            "Give two files of batchrun bench, or two ids of jobs or runs.",
        )
    with storage_errors(space.home):
        if all(are_files):
            from batchrun.insight.bench_comparison import compare_benches

            found = compare_benches(Path(a), Path(b))
        else:
            runs = run_that_computed(space, a), run_that_computed(space, b)
            found = compare_runs(*runs, num_shown=show, price=price)
    return with_outcomes(found, parsed)


def _plain(found: "Comparison") -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(found)
    return plain
