"""`batchrun submit`."""

import click

from batchrun import api
from batchrun.cli import options
from batchrun.cli.console import console
from batchrun.cli.ending import tell_end
from batchrun.cli.outcome import finish_with_error
from batchrun.errors import BatchrunError


@click.command(short_help="start or continue the summaries of a corpus")
@click.argument("corpus", nargs=-1, required=True)
@options.job_spec
@click.option(
    "--output",
    "-o",
    metavar="OUT",
    help="The output; default: <corpus stem>.summaries.parquet beside the corpus.",
)
@options.corpus
@options.shard
@options.max_error_rate
@options.accept_engine
@options.window
@options.files
@click.option(
    "--release",
    metavar="ID",
    help="What to call this run by, such as a version of the spec or the image: for status and compare.",
)
@options.log_format
@options.home
@options.as_json
@options.quiet
def command(
    corpus: tuple[str, ...],
    job_path: str | None,
    name: str | None,
    seed: int,
    output: str | None,
    id_column: str | None,
    text_column: str | None,
    keep_columns: str | None,
    limit: int | None,
    shard: str | None,
    max_error_rate: float,
    accept_engine: bool,
    deadline: str | None,
    time_budget: str | None,
    prefer: str | None,
    summary_file: str | None,
    metrics_file: str | None,
    release: str | None,
    log_format: str,
    home: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Summarize CORPUS, or go on where the last run stopped. CORPUS are files, folders or globs: Parquet,
    JSONL, CSV, TSV, Arrow and datasets, text and HTML; or - for JSONL on standard input, compressed or not.

    What is finished is not computed again: the same command is the resume, and tomorrow's corpus
    costs only what changed.

    \b
    Examples:
      batchrun submit corpus.parquet
      batchrun submit news/ -o news.summaries.parquet --keep-columns title,url
      batchrun submit corpus.parquet --shard 2/4
      zcat new.jsonl.gz | batchrun submit - -o new.summaries.parquet
    """
    try:
        record = api.submit(
            corpus,
            job=job_path,
            name=name,
            seed=seed,
            output=output,
            home=home,
            id_column=id_column,
            text_column=text_column,
            keep_columns=options.split_columns(keep_columns),
            limit=limit,
            shard=shard,
            max_error_rate=max_error_rate,
            accept_engine=accept_engine,
            deadline=deadline,
            time_budget=time_budget,
            prefer=prefer,
            metrics_file=metrics_file,
            release=release,
            reporter=console(quiet=quiet, log_format=log_format),
        )
    except (BatchrunError, OSError) as error:
        raise finish_with_error(
            error, as_json=as_json, summary_file=summary_file, log_format=log_format
        ) from None
    return tell_end(record, as_json=as_json, quiet=quiet, summary_file=summary_file, log_format=log_format)
