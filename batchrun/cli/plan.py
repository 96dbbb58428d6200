"""`batchrun plan`."""

from typing import TYPE_CHECKING

import click
import msgspec

from batchrun import api
from batchrun.cli import options
from batchrun.cli.console import console
from batchrun.cli.outcome import echo_json
from batchrun.clock import duration

if TYPE_CHECKING:
    from batchrun.fit import Fit
    from batchrun.forecast import Forecast
    from batchrun.preview import Prompt


@click.command(short_help="what submit would do, and why")
@click.argument("corpus", nargs=-1, required=True)
@options.job_spec
@options.corpus
@options.shard
@click.option("--show-prompt", metavar="ID", help="Show what the model will see for the row of this id.")
@options.window
@options.home
@options.as_json
@options.quiet
def command(
    corpus: tuple[str, ...],
    job: options.JobChoice,
    columns: options.CorpusChoice,
    shard: str | None,
    show_prompt: str | None,
    window: options.WindowChoice,
    home: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Plan CORPUS without running it: rows to run, reused, duplicate, skipped and too long; tokens by
    bucket; the time it would take where a rate is known. Loads no model; submit uses the plan.

    \b
    Examples:
      batchrun plan corpus.parquet
      batchrun plan corpus.parquet --show-prompt 17
    """
    asked = {**vars(job), **vars(columns), "home": home}
    if show_prompt is not None:
        show(api.show_prompt(corpus, show_prompt, **asked), as_json=as_json)
        return
    found = api.plan(corpus, **asked, **vars(window), shard=shard, reporter=console(quiet=quiet))
    if as_json:
        echo_json(msgspec.to_builtins(found))
    else:
        click.echo(render(found))


def show(prompt: "Prompt", *, as_json: bool) -> None:
    """A prompt alone on standard output; what is to be known of it, elsewhere."""
    if as_json:
        echo_json(msgspec.to_builtins(prompt))
        return
    click.echo(prompt.text)
    parts = f"; part 1 of {prompt.num_parts}" if prompt.num_parts > 1 else ""
    click.echo(f"batchrun: {prompt.num_tokens:,} tokens{parts}", err=True)


def render(found: "Forecast") -> str:
    """The plan as a person reads it."""
    counts, outline = found.counts, found.outline
    rows = f"{counts.total:,} rows"
    if found.shard is not None:
        rows = f"shard {found.shard}, {counts.total:,} of {found.corpus_rows:,} rows"
    lines = [f"job {found.job_id}, seed {found.seed}: {rows}"]
    lines += [
        f"  {number:>12,}  {label}"
        for number, label in (
            (counts.to_run, f"to run: {counts.to_run_tokens:,} tokens to read"),
            (counts.reused, "reused: finished by an earlier run"),
            (counts.duplicate, "duplicate: the text stood before; computed once"),
            (counts.skipped, "skipped: empty, blank or null"),
            (found.too_long, f"too long: over {found.longest_document:,} tokens"),
            (counts.unusable - found.too_long, "unusable: no text could be read"),
        )
    ]
    lines.append("input tokens   documents        tokens")
    lines += [
        f"  {label:<12} {documents:>9,}  {outline.tokens_by_bucket[label]:>12,}"
        for label, documents in outline.documents_by_bucket.items()
        if documents
    ]
    lines.append(
        f"padding, were the engine a padded one: {outline.padding_without_buckets:.0%} of its tokens in input "
        f"order, {outline.padding_with_buckets:.0%} with buckets"
    )
    known = found.estimated_seconds
    lines.append(
        "time: no rate known yet; a first run measures it"
        if known is None
        else f"time: about {duration(known)}, {found.estimated_by}"
    )
    if found.fit is not None:
        lines.append(fit_text(found.fit, counts.to_run))
    return "\n".join(lines)


def fit_text(fit: "Fit", to_run: int) -> str:
    """How much of what is to run is done when the window ends."""
    window = f"window: {duration(fit.seconds)} of running until it ends {fit.ends}"
    if fit.documents is None or fit.spare_seconds is None:
        return f"{window}; how much fits is known after a first run, or after batchrun calibrate"
    if fit.documents >= to_run:
        return f"{window}: all fits, with {duration(fit.spare_seconds)} to spare"
    missing = duration(-fit.spare_seconds)
    return (
        f"{window}: about {fit.documents:,} of {to_run:,} documents fit; {missing} are missing for the rest"
    )
