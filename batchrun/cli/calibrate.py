"""`batchrun calibrate`."""

from typing import TYPE_CHECKING

import click
import msgspec

from batchrun.cli import options
from batchrun.cli.console import console
from batchrun.cli.outcome import echo_json, finish_with_error
from batchrun.clock import duration
from batchrun.errors import BatchrunError, UsageError

if TYPE_CHECKING:
    from batchrun.calibration import Calibration, SpeculationResult
    from batchrun.profile import Point


@click.command(short_help="measure the engine here, for estimates and for the spec")
@click.argument("corpus", nargs=-1)
@options.job_spec
@options.corpus
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="S",
    help="About how long to measure.",
)
@click.option(
    "--batched-tokens",
    metavar="A,B",
    help="Values of max_num_batched_tokens to try beside the spec's; default: its half and double, in time.",
)
@options.home
@options.as_json
@options.quiet
def command(
    corpus: tuple[str, ...],
    job: options.JobChoice,
    columns: options.CorpusChoice,
    seconds: float,
    batched_tokens: str | None,
    home: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure the job's engine on this machine: how fast it reads by length of prompt and writes by number
    of sequences, and with which max_num_batched_tokens. With CORPUS its first eight documents are decoded
    with and without speculation. The profile is kept in checkpoints/profiles: plan and submit tell time by it.

    \b
    Examples:
      batchrun calibrate
      batchrun calibrate corpus.parquet --seconds 300 --batched-tokens 8192,32768
    """
    try:
        from batchrun.calibration import calibrate

        values = _numbers(batched_tokens)
        opened = job.open(home)
        given = columns.find(opened, corpus) if corpus else None
        found = calibrate(
            opened, given, seconds=seconds, batched_tokens=values, reporter=console(quiet=quiet)
        )
    except (BatchrunError, OSError) as error:
        raise finish_with_error(error, as_json=as_json) from None
    if as_json:
        echo_json(plain(found))
    elif not quiet:
        click.echo(render(found))


def _numbers(given: str | None) -> list[int]:
    words = options.split_columns(given)
    if not all(word.isdecimal() and int(word) for word in words):
        raise UsageError(
            f"--batched-tokens is {given!r}", "Give numbers of tokens: --batched-tokens 8192,16384"
        )
    return [int(word) for word in words]


def plain(found: "Calibration") -> dict[str, object]:
    """The JSON object: the profile with its path, speculation and advice."""
    speculation = found.speculation
    told = None if speculation is None else {"ratio": speculation.ratio, "is_exact": speculation.is_exact}
    fields: dict[str, object] = msgspec.to_builtins(found, enc_hook=str)
    return fields | {"speculation": told and msgspec.to_builtins(speculation) | told}


def render(found: "Calibration") -> str:
    """The profile as a person reads it."""
    profile, of = found.profile, found.profile.of
    lines = [f"{of.engine} {of.engine_version}, {of.dtype}, speculation {of.speculation}, on {of.device}"]
    lines += _table("input tokens of a prompt", "read, tokens/s", profile.prefill)
    lines += _table("sequences at once", "written, tokens/s", profile.decode)
    if len(profile.batched_tokens) > 1:
        lines += _table("max_num_batched_tokens", "read, tokens/s", profile.batched_tokens)
    if found.speculation is not None:
        lines.append(_speculation(found.speculation))
    loading, measuring = duration(found.loading_seconds), duration(found.measuring_seconds)
    lines.append(f"profile: {found.path} ({measuring} of measuring, {loading} of loading)")
    lines += found.advice or ["nothing to change in the spec"]
    return "\n".join(lines)


def _table(left: str, right: str, points: "tuple[Point, ...]") -> list[str]:
    return [f"{left:>24}  {right:>18}"] + [f"{number:>24,}  {rate:>18,.1f}" for number, rate in points]


def _speculation(found: "SpeculationResult") -> str:
    equal = (
        "every output the same"
        if found.is_exact
        else f"{found.num_documents - found.num_equal} of {found.num_documents} outputs differ"
    )
    return (
        f"speculation, on {found.num_documents} documents at once: {found.on_tokens_per_s:,.1f} instead of "
        f"{found.off_tokens_per_s:,.1f} tokens/s written ({found.ratio:.2f} times), {equal}"
    )
