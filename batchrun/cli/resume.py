"""`batchrun resume`."""

import click

from batchrun import api
from batchrun.cli import options
from batchrun.cli.console import console
from batchrun.cli.ending import tell_end
from batchrun.cli.outcome import finish_with_error
from batchrun.errors import BatchrunError


@click.command(short_help="continue a job from its spool, without the corpus")
@click.argument("job_id")
@click.option("--failed", is_flag=True, help="Compute failed rows again, permanent failures too.")
@click.option("--output", "-o", metavar="OUT", help="The output; default: where the run before wrote it.")
@click.option("--seed", type=int, help="The seed, where the job has runs of several.")
@click.option(
    "--corpus", "corpus_id", metavar="ID", help="The corpus id, where the job has several; see status."
)
@click.option("--shard", metavar="I/N", help="The shard; default: the one that was started last.")
@options.max_error_rate
@options.accept_engine
@options.window
@options.files
@options.log_format
@options.home
@options.as_json
@options.quiet
def command(
    job_id: str,
    failed: bool,
    output: str | None,
    seed: int | None,
    corpus_id: str | None,
    shard: str | None,
    max_error_rate: float,
    accept_engine: bool,
    window: options.WindowChoice,
    summary_file: str | None,
    metrics_file: str | None,
    log_format: str,
    home: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Continue JOB_ID (or its beginning) where it stopped; the corpus may have changed or be gone.

    \b
    Example:
      batchrun resume summarize-1f2e3d4c
    """
    try:
        record = api.resume(
            job_id,
            failed=failed,
            output=output,
            seed=seed,
            corpus_id=corpus_id,
            shard=shard,
            home=home,
            **vars(window),
            max_error_rate=max_error_rate,
            accept_engine=accept_engine,
            metrics_file=metrics_file,
            reporter=console(quiet=quiet, log_format=log_format),
        )
    except (BatchrunError, OSError) as error:
        raise finish_with_error(
            error, as_json=as_json, summary_file=summary_file, log_format=log_format
        ) from None
    return tell_end(record, as_json=as_json, quiet=quiet, summary_file=summary_file, log_format=log_format)
