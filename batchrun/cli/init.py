"""`batchrun init`."""

from pathlib import Path

import click

from batchrun.errors import OutputError

IGNORED = "buckets/\ncheckpoints/\n.cache/\n"


@click.command(short_help="make a workspace with starter specs")
@click.argument("folder", default=".")
def command(folder: str) -> None:
    """Make FOLDER a workspace: jobs/ with starter specs, buckets/ and checkpoints/. Existing files stay.

    \b
    Example:
      batchrun init nightly
    """
    target = Path(folder).absolute()
    try:
        for name in ("jobs", "buckets", "checkpoints"):
            (target / name).mkdir(parents=True, exist_ok=True)
        written = [
            _write(target / "jobs" / spec.name, spec.read_text(encoding="utf-8")) for spec in starters()
        ]
        written.append(_write(target / ".gitignore", IGNORED))
    except OSError as error:
        raise OutputError(f"{target} can not be made a workspace: {error}", "Give another folder.") from error
    for path in written:
        click.echo(f"batchrun: {path}", err=True)
    click.echo(f"batchrun: next: set the model in {target / 'jobs' / 'summarize.toml'}, then", err=True)
    click.echo(f"  batchrun submit corpus.parquet --home {target}", err=True)


def starters() -> list[Path]:
    """The starter specs: in an installed package beside the code, in a checkout in `jobs/`."""
    package = Path(__file__).parent.parent
    folder = package / "starters"
    return sorted((folder if folder.is_dir() else package.parent / "jobs").glob("*.toml"))


def _write(path: Path, content: str) -> str:
    if path.exists():
        return f"kept {path}"
    path.write_text(content, encoding="utf-8")
    return f"wrote {path}"
