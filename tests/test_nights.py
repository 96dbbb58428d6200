"""Thirty nights of a corpus that changes a little: what is new is computed, what left is gone, and both are said."""

from collections.abc import Sequence

import pytest

from batchrun.errors import InterruptedRunError
from tests.commands import Bench, Result, texts

NIGHTS, ROWS = 30, 200


def next_night(corpus: list[str], night: int) -> list[str]:
    """2 % of the rows are new: three texts changed, one added, and one row dropped in the middle."""
    changed = list(corpus)
    for number in range(3):
        changed[(night * 17 + number * 61) % ROWS] = f"Night {night} rewrote text {number} of the corpus."
    del changed[(night * 29 + 5) % ROWS]
    return [*changed, f"Night {night} brought a text of its own."]


def rows(result: Result, *names: str) -> list[int]:
    assert 0 == result.code, result.err
    return [result.json["rows"][name] for name in names]


def departed(before: Sequence[str], now: Sequence[str]) -> int:
    return len(set(before) - set(now))


def test_thirty_nights(bench: Bench) -> None:
    """Each night a new file: only what changed is computed, and what left the corpus leaves the output."""
    corpus: list[str] = []
    for night in range(NIGHTS):
        before, corpus = corpus, next_night(corpus, night) if corpus else texts(ROWS)
        path = bench.corpus(corpus, f"night-{night:02d}.parquet")
        result = bench.submit(path)
        new, gone = set(corpus) - set(before), departed(before, corpus)
        assert [ROWS, ROWS, len(new), ROWS - len(new), gone] == rows(
            result, "total", "ok", "computed", "reused", "departed"
        )
        assert (f"{gone} texts of run" in result.err) == (gone > 0)
        heads = [text[:20] for text in corpus]
        published = bench.output(f"night-{night:02d}.summaries.parquet")
        assert heads == [row["summary"][:20] for row in published]
    assert 0 == bench.run("verify", result.json["job_id"]).code


def test_one_name_for_every_night(bench: Bench) -> None:
    """The plan of the night before is replaced while planning; what left is known all the same, once."""
    corpus = texts(50)
    first = bench.submit(bench.corpus(corpus))
    assert [0] == rows(first, "departed")
    path = bench.corpus(corpus[5:])
    bench.run("plan", path)
    second = bench.submit(path)
    assert [5, 0] == rows(second, "departed", "computed")
    assert f"5 texts of run {first.json['run_id']} are not in the corpus any more" in second.err
    assert [] == list(bench.home.glob("checkpoints/*/seed-0/corpora/*/before-*"))
    assert [0] == rows(bench.submit(path), "departed")


def test_what_left_is_counted_from_the_last_completed_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A night that stopped in the middle does not hide what left before it."""

    def die(*_: object) -> None:
        raise InterruptedRunError("the engine died", "Submit again.")

    corpus = texts(20)
    first = bench.submit(bench.corpus(corpus))
    with monkeypatch.context() as patch:
        patch.setattr("batchrun.engines.start", die)
        stopped = bench.submit(bench.corpus([*corpus[2:], "one more"]))
    assert [75, first.json["job_id"], 0] == [
        stopped.code,
        stopped.json["job_id"],
        stopped.json["rows"]["departed"],
    ]
    last = bench.submit(bench.corpus([*corpus[4:], "and another"]))
    assert [4, 1] == rows(last, "departed", "computed")


def test_what_left_is_known_after_a_resume(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count waits for the run that completes."""

    def die(*_: object) -> None:
        raise InterruptedRunError("the engine died", "Submit again.")

    corpus = texts(20)
    job = bench.submit(bench.corpus(corpus)).json["job_id"]
    with monkeypatch.context() as patch:
        patch.setattr("batchrun.engines.start", die)
        assert 75 == bench.submit(bench.corpus([*corpus[3:], "one more"])).code
    assert [3, 1] == rows(bench.run("resume", job, "--json"), "departed", "computed")


def test_another_corpus_follows_nothing(bench: Bench) -> None:
    """Two collections under one job: nothing of one departed since the other was summarized."""
    bench.submit(bench.corpus(texts(20)))
    assert [0] == rows(bench.submit(bench.corpus(["one", "two", *texts(5)], "other.parquet")), "departed")
    assert [0] == rows(bench.submit(bench.corpus(texts(20))), "departed")
