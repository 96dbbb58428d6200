"""batchrun from Python: what the commands do, as functions. `import batchrun` has them by name.

    record = batchrun.submit("corpus.parquet", home="/data/nightly", time_budget="4h")
    record.rows.ok, record.exit_code, record.output

Each raises a BatchrunError, with `reason`, `hint` and `exit_code`, where the command would end with an error, and
returns where a run ends: also with 3, 4, 75 and 130, which `exit_code` of the record tells. Outside the main
thread signals are the caller's.
"""

from collections.abc import Sequence
from datetime import datetime
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from batchrun.errors import UsageError
from batchrun.records import Preference
from batchrun.reporter import Reporter
from batchrun.run_record import RowCounts, RunRecord
from batchrun.shard import Shard, parse_shard
from batchrun.window import Window, window_of

if TYPE_CHECKING:
    from batchrun.forecast import Forecast
    from batchrun.job import Job
    from batchrun.preparation import CorpusInput
    from batchrun.preview import Prompt

PathOrText = str | PathLike[str]
Corpus = PathOrText | Sequence[PathOrText]


def submit(
    corpus: Corpus,
    *,
    job: PathOrText | None = None,
    name: str | None = None,
    seed: int = 0,
    output: PathOrText | None = None,
    home: PathOrText | None = None,
    id_column: str | None = None,
    text_column: str | None = None,
    keep_columns: Sequence[str] = (),
    limit: int | None = None,
    max_error_rate: float = 0.01,
    accept_engine: bool = False,
    deadline: str | datetime | None = None,
    time_budget: str | float | None = None,
    prefer: str | None = None,
    shard: str | None = None,
    metrics_file: PathOrText | None = None,
    release: str | None = None,
    reporter: Reporter | None = None,
) -> RunRecord:
    """Summarize a corpus, or go on where the last run stopped: `batchrun submit`.

    `corpus` is a file, a folder, a pattern, or several; `job` the spec's file or its name in `jobs/`; `deadline` a
    clock time, an ISO timestamp with its zone, or a datetime with one; `time_budget` seconds, or as `4h`; `shard` a
    share of the corpus as `2/3`, which has no output: `results` joins them; `release` what the run's record calls
    it by, for `compare`. Returns the run's record. Raises BatchrunError.
    """
    from batchrun.defaults import output_path
    from batchrun.run_options import RunOptions
    from batchrun.submission import submit as begin

    window = open_window(deadline, time_budget)
    inputs, share = _inputs(corpus), _shard(shard)
    _refuse_output(share, output)
    target = None if share else output_path(_text(output), inputs, seed, limit)
    opened = _open_job(job, name, seed, home)
    given = _find_corpus(opened, inputs, id_column, text_column, keep_columns, limit, share)
    options = RunOptions(
        output=target,
        is_output_named=output is not None,
        max_error_rate=max_error_rate,
        accept_engine=accept_engine,
        window=window,
        prefer=_preference(prefer),
        metrics_file=None if metrics_file is None else Path(metrics_file).absolute(),
        release=_release(release),
    )
    return begin(opened, given, options, reporter or Reporter())


def resume(
    job_id: str,
    *,
    failed: bool = False,
    output: PathOrText | None = None,
    seed: int | None = None,
    corpus_id: str | None = None,
    shard: str | None = None,
    home: PathOrText | None = None,
    max_error_rate: float = 0.01,
    accept_engine: bool = False,
    deadline: str | datetime | None = None,
    time_budget: str | float | None = None,
    prefer: str | None = None,
    metrics_file: PathOrText | None = None,
    reporter: Reporter | None = None,
) -> RunRecord:
    """Continue a job from its spool, without the corpus: `batchrun resume`. `job_id` may be its beginning. Without a
    seed, corpus or shard, the run that was started last goes on.

    Returns the run's record. Raises BatchrunError.
    """
    from batchrun.run_options import RunOptions
    from batchrun.submission import resume as go_on

    window = open_window(deadline, time_budget)
    job, last = _last_run(job_id, seed, corpus_id, home, _shard(shard))
    _refuse_output(last.shard, output)
    options = RunOptions(
        output=None if last.shard else Path(output or last.output or "").absolute(),
        max_error_rate=max_error_rate,
        accept_engine=accept_engine,
        retry_all=failed,
        window=window,
        prefer=_preference(prefer),
        metrics_file=None if metrics_file is None else Path(metrics_file).absolute(),
        release=last.release,
    )
    return go_on(job, last, options, reporter or Reporter())


def plan(
    corpus: Corpus,
    *,
    job: PathOrText | None = None,
    name: str | None = None,
    seed: int = 0,
    home: PathOrText | None = None,
    id_column: str | None = None,
    text_column: str | None = None,
    keep_columns: Sequence[str] = (),
    limit: int | None = None,
    deadline: str | datetime | None = None,
    time_budget: str | float | None = None,
    prefer: str | None = None,
    shard: str | None = None,
    reporter: Reporter | None = None,
) -> "Forecast":
    """What `submit` would do with the same arguments, and how long it would take: `batchrun plan`. Loads no model.

    Raises BatchrunError.
    """
    from batchrun.forecast import forecast

    window = open_window(deadline, time_budget)
    opened = _open_job(job, name, seed, home)
    given = _find_corpus(opened, _inputs(corpus), id_column, text_column, keep_columns, limit, _shard(shard))
    return forecast(opened, given, reporter or Reporter(), window, _preference(prefer))


def show_prompt(
    corpus: Corpus,
    doc_id: str,
    *,
    job: PathOrText | None = None,
    name: str | None = None,
    seed: int = 0,
    home: PathOrText | None = None,
    id_column: str | None = None,
    text_column: str | None = None,
    keep_columns: Sequence[str] = (),
    limit: int | None = None,
) -> "Prompt":
    """What the model will see for the row of an id: `batchrun plan --show-prompt`. Raises BatchrunError."""
    from batchrun.preview import preview

    opened = _open_job(job, name, seed, home)
    given = _find_corpus(opened, _inputs(corpus), id_column, text_column, keep_columns, limit)
    return preview(opened, given, doc_id)


def status(job_id: str | None = None, *, home: PathOrText | None = None) -> list[RunRecord]:
    """The last run of each corpus of a job, or of all jobs, as it stands: `batchrun status`. A run that says it runs
    and holds no lock is told as interrupted.

    Raises BatchrunError where there is no such job.
    """
    from batchrun.selection import standing_runs
    from batchrun.workspace import find_workspace

    return standing_runs(find_workspace(_text(home)), job_id)


def results(
    job_id: str,
    output: PathOrText,
    *,
    seed: int | None = None,
    corpus_id: str | None = None,
    home: PathOrText | None = None,
    reporter: Reporter | None = None,
) -> RowCounts:
    """Publish what a job has by now, also while it runs: `batchrun results`. Shards of a corpus are joined, and
    `reporter` is told which are not complete. Returns the rows by status.

    Raises BatchrunError.
    """
    from batchrun.snapshot import publish_now

    job, last = _last_run(job_id, seed, corpus_id, home)
    snapshot = publish_now(job, last, Path(output).absolute())
    for line in snapshot.lines:
        (reporter or Reporter()).note(line)
    return snapshot.rows


def open_window(deadline: str | datetime | None, time_budget: str | float | None) -> Window:
    """Raises UsageError, and WindowOverError where it is over."""
    if isinstance(deadline, datetime):
        deadline = deadline.isoformat()
    opened = window_of(deadline, None if time_budget is None else str(time_budget))
    opened.require_open()
    return opened


def _preference(given: str | None) -> Preference | None:
    if given is None:
        return None
    if given not in list(Preference):
        raise UsageError(f"prefer is {given!r}", f"Give one of {', '.join(Preference)}.")
    return Preference(given)


def _release(given: str | None) -> str | None:
    if given is not None and not (given.strip() and given.isprintable()):
        raise UsageError(
            f"release is {given!r}", "Give a name on one line, such as a version: --release 2026-12-01"
        )
    return given


def _shard(given: str | None) -> Shard | None:
    return None if given is None else parse_shard(given)


def _refuse_output(shard: Shard | None, output: PathOrText | None) -> None:
    if shard is not None and output is not None:
        raise UsageError(
            f"shard {shard} publishes nothing, so that it has no output",
            "Leave -o away; when the shards are done: batchrun results JOB_ID -o OUT joins them.",
        )


def _inputs(corpus: Corpus) -> list[str]:
    inputs = [fspath(corpus)] if isinstance(corpus, str | PathLike) else [fspath(one) for one in corpus]
    if not inputs:
        raise UsageError("no corpus is given", "Name a file, a folder or a pattern.")
    return inputs


def _text(path: PathOrText | None) -> str | None:
    return None if path is None else fspath(path)


def _open_job(job: PathOrText | None, name: str | None, seed: int, home: PathOrText | None) -> "Job":
    from batchrun.defaults import spec_path
    from batchrun.job import open_job
    from batchrun.workspace import find_workspace

    space = find_workspace(_text(home))
    return open_job(space, spec_path(space, _text(job)), name=name, seed=seed)


def _find_corpus(
    job: "Job",
    inputs: list[str],
    id_column: str | None,
    text_column: str | None,
    keep_columns: Sequence[str],
    limit: int | None,
    shard: Shard | None = None,
) -> "CorpusInput":
    from batchrun.corpus.corpus import ColumnWishes
    from batchrun.preparation import find_corpus

    wishes = ColumnWishes(text=text_column, id=id_column, kept=tuple(keep_columns))
    return find_corpus(job, inputs, wishes, limit, shard)


def _last_run(
    job_id: str,
    seed: int | None,
    corpus_id: str | None,
    home: PathOrText | None,
    shard: Shard | None = None,
) -> "tuple[Job, RunRecord]":
    from batchrun.job import reopen_job
    from batchrun.selection import last_run
    from batchrun.workspace import find_workspace

    space = find_workspace(_text(home))
    full_id = space.find_job(job_id)
    last = last_run(space, full_id, seed=seed, corpus_id=corpus_id, shard=shard)
    return reopen_job(space, full_id, seed=last.seed), last
