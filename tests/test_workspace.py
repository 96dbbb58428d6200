"""The three folders: which workspace is meant, which job, and where each file lies."""

from pathlib import Path

import pytest

from batchrun.errors import ConfigError
from batchrun.workspace import Workspace, corpus_id, find_workspace


def make_jobs(home: Path, *job_ids: str) -> Workspace:
    for job_id in job_ids:
        folder = home / "checkpoints" / job_id
        folder.mkdir(parents=True)
        (folder / "job.json").write_text("{}")
    return Workspace(home=home)


def test_the_option_comes_before_the_environment(tmp_path: Path) -> None:
    """`--home`, then BATCHRUN_HOME."""
    environment = {"BATCHRUN_HOME": str(tmp_path / "environment")}
    assert tmp_path / "option" == find_workspace(str(tmp_path / "option"), environment).home
    assert tmp_path / "environment" == find_workspace(None, environment).home


@pytest.mark.parametrize(
    ("given", "expected"),
    [("~/here", "home/here"), ("here", "work/here"), ("~no-such-user/x", "work/~no-such-user/x")],
)
def test_a_given_home_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, expected: str
) -> None:
    """A tilde is the home folder, and relative paths begin where the command was called."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert tmp_path / expected == find_workspace(given, {}).home


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        (["a/jobs", "a/b/c"], "a"),
        (["a/jobs", "a/b/c/jobs"], "a/b/c"),
        (["a/b/c", "a/x/jobs"], "a/b/c"),
    ],
)
def test_the_nearest_folder_with_jobs_is_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders: list[str], expected: str
) -> None:
    """Looked for upwards from the current folder, which is taken where there is none."""
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a/b/c")
    assert tmp_path / expected == find_workspace(None, {}).home


def test_a_file_named_jobs_makes_no_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a folder holds specs."""
    (tmp_path / "jobs").write_text("")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert tmp_path / "below" == find_workspace(None, {}).home


@pytest.mark.parametrize(
    ("given", "expected"),
    [("news-1f2e3d4c", "news-1f2e3d4c"), ("mail", "mail-00000000"), ("news-1", "news-1f2e3d4c"), ("old", "old")],
)  # fmt: skip
def test_a_job_is_found_by_its_beginning(tmp_path: Path, given: str, expected: str) -> None:
    """A whole id, or the beginning of one only; a whole id that begins another is itself."""
    space = make_jobs(tmp_path, "news-1f2e3d4c", "news-aaaaaaaa", "mail-00000000", "old", "old-11111111")
    assert expected == space.find_job(given)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("news", "job 'news' is ambiguous: news-1f2e3d4c, news-aaaaaaaa"),
        (
            "letters",
            "there is no job 'letters' in {home}/checkpoints: mail-00000000, news-1f2e3d4c, news-aaaaaaaa",
        ),
    ],
)
def test_a_job_that_is_not_one_is_refused(tmp_path: Path, given: str, reason: str) -> None:
    """The ids that could be meant are listed."""
    space = make_jobs(tmp_path, "news-1f2e3d4c", "news-aaaaaaaa", "mail-00000000")
    with pytest.raises(ConfigError) as caught:
        space.find_job(given)
    hint = "Give one of these ids, or another workspace with --home."
    assert f"{reason.format(home=tmp_path)}\n{hint}" == str(caught.value)


@pytest.mark.parametrize("given", ["1f2e3d4c", "ews", "NEWS", "news-1f2e3d4c-"])
def test_an_id_is_not_found_by_its_middle(tmp_path: Path, given: str) -> None:
    """Only its beginning is short for it."""
    with pytest.raises(ConfigError, match="there is no job"):
        make_jobs(tmp_path, "news-1f2e3d4c").find_job(given)


def test_an_empty_workspace_has_no_jobs(tmp_path: Path) -> None:
    """Nothing needs to be there to ask."""
    space = Workspace(home=tmp_path)
    assert space.job_ids() == []
    with pytest.raises(ConfigError, match=r"there is no job 'x': .* has none yet\nSubmit a corpus first"):
        space.find_job("x")


def test_a_folder_without_job_json_is_no_job(tmp_path: Path) -> None:
    """What a killed first run left before its `job.json` is not listed."""
    space = make_jobs(tmp_path, "news-1f2e3d4c")
    (tmp_path / "checkpoints" / "half-22222222").mkdir()
    assert space.job_ids() == ["news-1f2e3d4c"]


def test_where_files_lie(tmp_path: Path) -> None:
    """The layout people back up, delete and read by hand."""
    job = Workspace(home=tmp_path).job("news-1f2e3d4c", 7)
    corpus = job.corpus("abc")
    checkpoint = "checkpoints/news-1f2e3d4c"
    expected = {
        "jobs": Workspace(home=tmp_path).jobs,
        "checkpoints/models.json": Workspace(home=tmp_path).models_record,
        f"{checkpoint}/job.json": job.job_record,
        f"{checkpoint}/seed-7/segments": job.segments,
        f"{checkpoint}/seed-7/corpora/abc/plan.parquet": corpus.plan,
        f"{checkpoint}/seed-7/corpora/abc/plan.json": corpus.plan_record,
        f"{checkpoint}/seed-7/corpora/abc/carried.parquet": corpus.carried,
        f"{checkpoint}/seed-7/corpora/abc/lock": corpus.lock,
        f"{checkpoint}/seed-7/corpora/abc/runs": corpus.runs,
        "buckets/news-1f2e3d4c/seed-7/abc": corpus.spool,
        "buckets/news-1f2e3d4c/seed-7/scratch": job.scratch,
    }
    assert {str(tmp_path / name): str(path) for name, path in expected.items()} == {
        str(path): str(path) for path in expected.values()
    }


def test_seeds_are_those_with_a_folder(tmp_path: Path) -> None:
    """In order of their numbers, not of their names."""
    space = make_jobs(tmp_path, "news-1f2e3d4c")
    for seed in (10, 9, 0):
        space.job("news-1f2e3d4c", seed).segments.mkdir(parents=True)
    assert space.job("news-1f2e3d4c", 0).seeds() == [0, 9, 10]


def test_a_corpus_is_known_by_its_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same paths and limit, relative or not, are the same corpus; another order, limit or path is not."""
    monkeypatch.chdir(tmp_path)
    one = corpus_id(["a.parquet", "b.parquet"], None)
    assert one == corpus_id([str(tmp_path / "a.parquet"), "./x/../b.parquet"], None)
    others = [
        corpus_id(["b.parquet", "a.parquet"], None),
        corpus_id(["a.parquet"], None),
        corpus_id(["a.parquet", "b.parquet"], 10),
        corpus_id(["a.parquet", "b.parquet"], 1),
        corpus_id(["a.parquet", "b.parquet", "limit=10"], None),
    ]
    assert len(others) + 1 == len({one, *others})


def test_a_corpus_id_never_changes_unnoticed() -> None:
    """It names folders: with another one, a corpus would be planned and waited for anew."""
    assert corpus_id(["/data/corpus.parquet"], None) == "4071585763"
    assert corpus_id(["/data/corpus.parquet"], 5) == "e3ed64f42c"


def test_a_path_that_is_not_utf_8_has_an_id() -> None:
    """File names are bytes."""
    assert len(corpus_id([b"/data/\xff.parquet".decode(errors="surrogateescape")], None)) == 10
