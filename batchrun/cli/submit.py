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
    job: options.JobChoice,
    output: str | None,
    columns: options.CorpusChoice,
    shard: str | None,
    max_error_rate: float,
    accept_engine: bool,
    window: options.WindowChoice,
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
            **vars(job),
            **vars(columns),
            **vars(window),
            output=output,
            home=home,
            shard=shard,
            max_error_rate=max_error_rate,
            accept_engine=accept_engine,
            metrics_file=metrics_file,
            release=release,
            reporter=console(quiet=quiet, log_format=log_format),
        )
    except (BatchrunError, OSError) as error:
        raise finish_with_error(
            error, as_json=as_json, summary_file=summary_file, log_format=log_format
        ) from None
    return tell_end(record, as_json=as_json, quiet=quiet, summary_file=summary_file, log_format=log_format)
