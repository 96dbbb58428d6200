"""`batchrun bench`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchrun.cli import options
from batchrun.cli.outcome import echo_json, finish_with_error
from batchrun.errors import BatchrunError, ExitCode
from batchrun.window import Window, parse_duration

if TYPE_CHECKING:
    from batchrun.insight.bench_plan import Matrix


@click.command(short_help="the matrix of lengths and concurrency, measured for capacity planning")
@options.job_spec
@click.option(
    "--inputs",
    default="512,8K,32K",
    show_default=True,
    metavar="A,B",
    help="Tokens of the prompts. K is 1,024.",
)
@click.option(
    "--outputs",
    default="64,512,2K",
    show_default=True,
    metavar="A,B",
    help="Tokens of the outputs: exactly, whatever the model would end them at.",
)
@click.option(
    "--concurrency",
    default="1,8,32",
    show_default=True,
    metavar="A,B",
    help="Requests kept in the engine at once.",
)
@click.option(
    "--cache",
    default="cold,warm,repeated-prefix",
    show_default=True,
    metavar="A,B",
    help="States of the prefix cache: nothing of a prompt is in it; all is; its first three quarters are.",
)
@click.option(
    "--requests",
    type=click.IntRange(min=1),
    metavar="N",
    help="Requests of each cell; default: twice the concurrency, at least 8.",
)
@options.time_budget
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default="bench.parquet",
    show_default=True,
    help="The file of results; one of an earlier bench is replaced.",
)
@options.home
@options.as_json
@options.quiet
def command(
    job: options.JobChoice,
    inputs: str,
    outputs: str,
    concurrency: str,
    cache: str,
    requests: int | None,
    time_budget: str | None,
    output: str,
    home: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Measure the job's engine at every combination of prompt length, output length, number of requests at
    once and state of the prefix cache: times to the first token and between tokens as percentiles, tokens/s,
    KV cache, preemptions, memory. What does not fit the model is said and left out. The prompts are random.

    Every cell is kept in FILE when it is measured; Ctrl-C or the end of the time loses the present one's rest.

    \b
    Examples:
      batchrun bench --time-budget 2h
      batchrun bench --inputs 512,4K --outputs 128 --concurrency 1,16 --cache cold -o h100.parquet
    """
    try:
        from batchrun.cli.bench_text import Teller, plain, render
        from batchrun.insight.bench import BenchReporter, bench

        window = Window(budget=None if time_budget is None else parse_duration(time_budget))
        matrix = _matrix(inputs, outputs, concurrency, cache, requests)
        reporter = BenchReporter() if quiet else Teller()
        end = bench(job.open(home), matrix, output=Path(output).absolute(), window=window, reporter=reporter)
    except (BatchrunError, OSError) as error:
        raise finish_with_error(error, as_json=as_json) from None
    if not (quiet and end.exit_code == ExitCode.COMPLETE):
        Teller().ended(end)
    if as_json:
        echo_json(plain(end))
    elif not quiet:
        click.echo(render(end))
    return end.exit_code


def _matrix(inputs: str, outputs: str, concurrency: str, cache: str, requests: int | None) -> "Matrix":
    from batchrun.insight.bench_plan import Matrix, parse_caches, parse_sizes

    return Matrix(
        inputs=parse_sizes("--inputs", inputs),
        outputs=parse_sizes("--outputs", outputs),
        concurrency=parse_sizes("--concurrency", concurrency),
        caches=parse_caches(cache),
        num_requests=requests,
    )
