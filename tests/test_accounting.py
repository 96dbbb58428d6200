"""Every row is accounted for: in the output, against plan and memo table, and among the failures."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrun import verification
from batchrun.engines.lead import LeadEngine
from batchrun.records import PERMANENT_ERRORS, Completion, ErrorType, FinishReason, is_permanent
from batchrun.run_record import RowCounts
from batchrun.store import checkpoints, publish
from batchrun.store.checkpoints import Checkpoints
from batchrun.workspace import JobPaths
from tests.commands import Bench, Result, texts

# -- the output ------------------------------------------------------------------------------------


def take(table: pa.Table, places: list[int]) -> pa.Table:
    return table.take(places)


def with_value(table: pa.Table, place: int, **values: Any) -> pa.Table:
    for name, value in values.items():
        column = table[name].to_pylist()
        column[place] = value
        number = table.schema.get_field_index(name)
        table = table.set_column(
            number, table.schema.field(number), pa.array(column, table.schema.field(number).type)
        )
    return table


BREAKS: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "a row dropped": (lambda t: take(t, [*range(7), *range(8, 20)]), "row 7 of {path} is missing"),
    "a row doubled": (lambda t: take(t, [*range(8), *range(7, 20)]), "row 7 of {path} stands there 2 times, planned 1"),
    "one doubled for one dropped": (
        lambda t: take(t, [*range(7), 3, *range(8, 20)]),
        "row 3 of {path} stands there 2 times, planned 1",
    ),
    "two rows swapped": (
        lambda t: take(t, [0, 1, 2, 9, 4, 5, 6, 7, 8, 3, *range(10, 20)]),
        "row 9 of {path} stands where row 3 of {path} belongs",
    ),
    "a summary changed": (
        lambda t: with_value(t, 5, summary="something else"),
        "row 5 of {path} has another summary than the memo table",
    ),
    "two summaries swapped": (
        lambda t: with_value(with_value(t, 5, summary=t["summary"][6].as_py()), 6, summary=t["summary"][5].as_py()),
        "row 5 of {path} has another summary than the memo table",
    ),
    "a summary lost": (
        lambda t: with_value(t, 5, summary=None),
        "row 5 of {path} is ok without a summary, or has one and is not ok",
    ),
    "a summary forgotten": (
        lambda t: with_value(t, 5, summary=None, status="failed", error_type="engine_error"),
        "the run recorded {{'ok': 18",
    ),
    "a skipped row made ok": (
        lambda t: with_value(t, 18, summary="x", status="ok", error_type=None),
        "row 18 of {path} has another status than the plan gave it",
    ),
    "a reason lost": (lambda t: with_value(t, 19, error_type=None), "row 19 of {path} does not say why it has no summary"),
    "another source": (lambda t: with_value(t, 2, source="/elsewhere"), "row 2 of {path} is missing"),
    "another key": (lambda t: with_value(t, 2, input_hash="0" * 32), "row 2 of {path} has another input_hash than the plan"),
}  # fmt: skip


@pytest.fixture
def published(bench: Bench) -> tuple[Bench, Path, str]:
    """Eighteen summaries, two of them of one text, a null and a document that is too long."""
    path = bench.corpus([*texts(17), texts(1)[0], None, "long " * 1000])
    result = bench.submit(path, "--max-error-rate", "1")
    assert 0 == result.code
    return bench, path, result.json["job_id"]


def test_verify_names_what_is_wrong_with_an_output(published: tuple[Bench, Path, str]) -> None:
    """Whatever is done to an output, the row is named; and as it was it passes."""
    bench, path, job = published
    output = bench.home / "corpus.summaries.parquet"
    good = pq.read_table(output)
    for name, (spoil, said) in BREAKS.items():
        pq.write_table(spoil(good), output)
        result = bench.run("verify", job)
        assert 75 == result.code, name
        assert said.format(path=path) in result.err, (name, result.err)
        assert f"DAMAGED  {output}" in result.err, name
    pq.write_table(good, output)
    assert 0 == bench.run("verify", job).code


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("total", "recorded 21 rows, planned were 20"),
        ("pending", "recorded 20 rows, planned were 20, and its statuses make 21"),
    ],
)
def test_verify_balances_the_books_of_a_run(
    field: str, said: str, published: tuple[Bench, Path, str]
) -> None:
    """`total = ok + failed + skipped + pending`, in the run record too."""
    bench, _, job = published
    [path] = bench.home.glob("checkpoints/*/seed-0/corpora/*/runs/*.json")
    record = json.loads(path.read_bytes())
    record["rows"][field] += 1
    path.write_text(json.dumps(record))
    result = bench.run("verify", job)
    assert 75 == result.code
    assert said in result.err


def test_an_output_that_another_run_wrote_over_is_that_run_s(bench: Bench) -> None:
    """Every night a new file, and one output: only the last run is held to it."""
    for number in (3, 5):
        result = bench.submit(
            bench.corpus(texts(number), f"{number}.parquet"), "-o", bench.home / "all.parquet"
        )
    verified = bench.run("verify", result.json["job_id"])
    assert 0 == verified.code, verified.err
    assert "has published another output there since" in verified.err


def test_verify_beside_a_compaction_looks_again(
    published: tuple[Bench, Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that another run's compaction takes away meanwhile is no damage."""
    bench, _, job = published
    real, calls = verification._check, []

    def compact_first(paths: JobPaths, listed: list[Path], *rest: Any) -> Any:
        calls.append(listed)
        if len(calls) == 1:
            with monkeypatch.context() as patch:
                patch.setattr(checkpoints, "COMPACT_FROM", 1)
                Checkpoints(paths, "another").compact()
        return real(paths, listed, *rest)

    monkeypatch.setattr(verification, "_check", compact_first)
    assert 0 == bench.run("verify", job).code
    assert 2 == len(calls)


def test_a_row_that_is_computed_since_is_no_damage(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An output says what was known when it was written."""
    one, two = bench.corpus(texts(4)), bench.corpus(texts(4), "two.parquet")
    with monkeypatch.context() as patch:
        failing(patch, ErrorType.ENGINE_ERROR)
        bench.submit(one)
    result = bench.submit(two)
    assert 4 == result.json["rows"]["ok"]
    assert 0 == bench.run("verify", result.json["job_id"]).code


def test_an_output_out_of_balance_is_not_put_in_place(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in that are not rows out: a bug, said as such, and the output stays what it was."""
    path = bench.corpus(texts(5))
    bench.submit(path)
    before = (bench.home / "corpus.summaries.parquet").read_bytes()
    real = publish._join
    monkeypatch.setattr(publish, "_join", lambda *arguments: _unknown_status(real(*arguments)))
    result = bench.submit(path)
    assert 70 == result.code
    assert "5 rows are planned, 5 would be published" in result.err
    assert before == (bench.home / "corpus.summaries.parquet").read_bytes()


def _unknown_status(table: pa.Table) -> pa.Table:
    return with_value(table, 2, status="lost")


@pytest.mark.parametrize(
    ("rows", "balanced"),
    [
        (RowCounts(), True),
        (RowCounts(total=10, ok=5, failed=2, skipped=2, pending=1, reused=4, duplicate=1), True),
        (RowCounts(total=10, ok=5, failed=2, skipped=2), False),
        (RowCounts(total=3, ok=4), False),
    ],
)
def test_the_books_balance(rows: RowCounts, *, balanced: bool) -> None:
    """`total = ok + failed + skipped + pending`."""
    assert balanced == rows.is_balanced


# -- failures --------------------------------------------------------------------------------------

OF_THE_CORPUS = {
    # Decided while planning, from one line of JSONL; the model is never asked.
    ErrorType.EMPTY_TEXT: '{"text": " "}',
    ErrorType.INVALID_JSON: '{"text": ',
    ErrorType.NOT_TEXT: '{"text": 5}',
    ErrorType.PROMPT_TOO_LONG: json.dumps({"text": "long " * 1000}),
}
OF_THE_ENGINE = sorted(set(ErrorType) - set(OF_THE_CORPUS))


def failing(patch: pytest.MonkeyPatch, error_type: ErrorType) -> None:
    """Every completion of the lead engine is this error."""
    real = LeadEngine.step

    def step(self: LeadEngine) -> list[Completion]:
        return [
            Completion(
                request_id=done.request_id,
                token_ids=[],
                finish_reason=FinishReason.ERROR,
                input_tokens=0,
                error_type=error_type,
                error="no",
            )
            for done in real(self)
        ]

    patch.setattr(LeadEngine, "step", step)


def failures(bench: Bench, job: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows that `results --only failed --json` lists, and its last object."""
    listed = bench.run("results", job, "--only", "failed", "--json")
    assert 0 == listed.code
    *rows, totals = map(json.loads, listed.out.splitlines())
    return rows, totals


def computed(result: Result) -> int:
    return int(result.json["rows"]["computed"])


def test_every_error_type_has_its_line() -> None:
    """One that is in no table would be tried again for ever, or never."""
    assert set(ErrorType) == set(PERMANENT_ERRORS)
    assert not is_permanent("an error of another version")


@pytest.mark.parametrize("error_type", OF_THE_ENGINE)
def test_a_failure_of_the_engine(
    error_type: ErrorType, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transient: the next submit tries again. Permanent: `resume --failed` alone does. Both are listed."""
    path = bench.corpus(texts(3))
    with monkeypatch.context() as patch:
        failing(patch, error_type)
        first = bench.submit(path)
    assert [3, 3] == [first.code, first.json["rows"]["failed"]]
    job = first.json["job_id"]
    rows, totals = failures(bench, job)
    line = {"source": str(path), "row": 1, "doc_id": 1, "error_type": error_type, "error": "no"}
    assert line == rows[1]
    reasons = {str(error_type): {"rows": 3, "permanent": PERMANENT_ERRORS[error_type]}}
    assert {"job_id": job, "failed": 3, "by_error_type": reasons} == totals
    again = bench.submit(path)
    assert (0 if PERMANENT_ERRORS[error_type] else 3) == computed(again)
    resumed = bench.run("resume", job, "--failed", "--json")
    assert 3 == computed(again) + computed(resumed)
    assert 3 == resumed.json["rows"]["ok"]
    assert ([], 0) == (failures(bench, job)[0], failures(bench, job)[1]["failed"])


@pytest.mark.parametrize("error_type", OF_THE_CORPUS)
def test_a_failure_of_the_corpus(error_type: ErrorType, bench: Bench) -> None:
    """Decided before the model is asked, the same every time; an empty text is skipped, not failed."""
    assert PERMANENT_ERRORS[error_type]
    path = bench.home / "corpus.jsonl"
    path.write_text('{"text": "a text"}\n' + OF_THE_CORPUS[error_type] + "\n")
    first = bench.submit(path)
    is_skipped = error_type is ErrorType.EMPTY_TEXT
    assert [0 if is_skipped else 3, 1] == [first.code, computed(first)]
    assert [error_type, "skipped" if is_skipped else "failed"] == [
        bench.output()[1][name] for name in ("error_type", "status")
    ]
    rows, totals = failures(bench, first.json["job_id"])
    reasons = {} if is_skipped else {str(error_type): {"rows": 1, "permanent": True}}
    assert reasons == totals["by_error_type"]
    assert ([] if is_skipped else [1]) == [row["row"] for row in rows]
    assert 0 == computed(bench.submit(path))


@pytest.mark.parametrize(("rate", "code"), [("0", 3), ("0.1", 3), ("0.24", 3), ("0.25", 0), ("1", 0)])
def test_the_share_of_failures_is_the_exit_code(rate: str, code: int, bench: Bench) -> None:
    """One of four attempted rows failed; skipped rows are not attempted. 3 above the rate, 0 at it."""
    path = bench.corpus([*texts(3), "long " * 1000, None, None])
    result = bench.submit(path, "--max-error-rate", rate)
    assert [code, "complete"] == [result.code, result.json["state"]]
    assert code == bench.run("resume", result.json["job_id"], "--max-error-rate", rate).code


def test_failures_are_counted_for_a_person(bench: Bench) -> None:
    """The rows on standard output, their number by reason beside it."""
    job = bench.submit(bench.corpus([*texts(2), "long " * 1000])).json["job_id"]
    listed = bench.run("results", job, "--only", "failed")
    assert 1 == len(listed.out.splitlines())
    assert "prompt_too_long: 1," in listed.out
    assert "1 prompt_too_long (permanent)" in listed.err


def test_failures_are_listed_without_an_output(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the plan and those of the engine, in input order; no summary is written or read for it."""
    bench.submit(bench.corpus(texts(2)))
    path = bench.corpus([*texts(2), "long " * 1000, *texts(4)[2:]])
    with monkeypatch.context() as patch:
        failing(patch, ErrorType.ENGINE_REJECTED)
        job = bench.submit(path).json["job_id"]

    def explode(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(publish, "_write", explode)
    rows, totals = failures(bench, job)
    assert [2, 3, 4] == [row["row"] for row in rows]
    assert [2, 1] == [
        totals["by_error_type"][kind]["rows"] for kind in ("engine_rejected", "prompt_too_long")
    ]


def test_verify_reads_wide_summaries(bench: Bench) -> None:
    """40 MB of summaries in 4,000 rows: only their hashes pass through the database."""
    spec = bench.write_spec()
    wide = spec.read_text().replace("max_tokens = 20", "max_tokens = 900")
    spec.write_text(wide.replace("max_model_len = 512", "max_model_len = 2000"))
    path = bench.corpus([f"{number} " + "constitutional representatives " * 450 for number in range(4000)])
    job = bench.submit(path).json["job_id"]
    verified = bench.run("verify", job)
    assert 0 == verified.code, verified.out + verified.err


def test_names_that_look_like_patterns_are_names(bench: Bench) -> None:
    """`news[1]` is not `news1`, in a workspace whose own name is a pattern."""
    for name, number in (("news[1].parquet", 5), ("news1.parquet", 3), ("n*.parquet", 2)):
        assert 0 == bench.submit(bench.corpus([f"{name} {text}" for text in texts(number)], name)).code
    job = bench.run("status", "--json").json[0]["job_id"]
    verified = bench.run("verify", job)
    assert 0 == verified.code, verified.out
    assert 0 == bench.run("gc", "--yes").code


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([1700000000000000001], pa.timestamp("ns")),
        pa.array([b"\xff\xfe"]).view(pa.string()),
        pa.array([None], pa.int64()),
    ],
)
def test_failures_are_listed_whatever_their_ids(bench: Bench, ids: pa.Array) -> None:
    """An id that Python has no type for is given as it prints."""
    path = bench.home / "ids.parquet"
    pq.write_table(pa.table({"id": ids, "text": ["long " * 1000]}), path)
    submitted = bench.submit(path)
    assert 3 == submitted.code
    listed = bench.run("results", submitted.json["job_id"], "--only", "failed", "--json")
    assert 0 == listed.code, listed.err
    assert "prompt_too_long" in listed.out


def test_a_copy_beside_a_seed_is_nobody(bench: Bench) -> None:
    """What a person or a file manager leaves in `checkpoints/` ends no command."""
    job = bench.submit(bench.corpus(texts(2))).json["job_id"]
    [seed] = bench.home.glob("checkpoints/*/seed-0")
    shutil.copytree(seed, seed.with_name("seed-0.bak"))
    (seed / "corpora" / ".DS_Store").touch()
    for words in (["status"], ["gc", "--yes"], ["verify", job], ["submit", bench.home / "corpus.parquet"]):
        result = bench.run(*words)
        assert 0 == result.code, (words, result.err)
    assert 1 == len(bench.run("status", "--json").json)


def test_an_output_that_was_moved_is_no_damage(bench: Bench) -> None:
    """It can be published again."""
    job = bench.submit(bench.corpus(texts(2))).json["job_id"]
    (bench.home / "corpus.summaries.parquet").unlink()
    verified = bench.run("verify", job)
    assert [0, True] == [verified.code, "not there any more" in verified.out + verified.err], verified
