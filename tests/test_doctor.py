"""What `batchrun doctor` tells, and in which order it says what to change."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from batchrun import engines, model
from batchrun.diagnosis import batched_tokens_advice, examine
from batchrun.errors import EngineUnavailableError
from batchrun.machine import device_name
from batchrun.profile import Profile, Subject, write_profile
from batchrun.run_record import RowCounts, RunRecord, RunState
from batchrun.store.lock import RunLock
from batchrun.telemetry.run_records import RunLog, timestamp
from batchrun.workspace import Workspace
from tests.commands import Bench, set_engine, texts


def doctor(bench: Bench) -> Any:
    return bench.run("doctor", "--json").json


def resolving(monkeypatch: pytest.MonkeyPatch, device: str, best: str) -> None:
    """A machine on which `auto` is `best`, whatever the engine."""
    monkeypatch.setattr(
        engines, "resolve_device_and_dtype", lambda _, dtype: (device, best if dtype == "auto" else dtype)
    )


def test_where_all_is_well_it_says_so(bench: Bench) -> None:
    """0, every fact with its mark, and no control characters without a terminal."""
    done = bench.run("doctor")
    assert 0 == done.code
    lines = done.out.splitlines()
    assert "Nothing to change. Next: batchrun submit CORPUS" == lines[-1]
    assert all(line.startswith("✓ ") for line in lines[:-2])
    assert "\x1b" not in done.out


@pytest.mark.parametrize(
    ("device", "best", "written", "said"),
    [
        ("cpu", "float32", "bfloat16", "only emulates bfloat16"),
        ("cpu", "bfloat16", "float32", "computes in bfloat16"),
        ("cuda", "bfloat16", "float32", "twice the bytes"),
        ("cuda", "bfloat16", "float16", "overflows"),
        ("cuda", "float16", "bfloat16", "does not compute in bfloat16"),
        ("cuda", "bfloat16", "auto", None),
        ("cuda", "bfloat16", "bfloat16", None),
        ("cpu", "float32", "auto", None),
    ],
)
def test_a_dtype_that_is_slow_or_unsafe_here_is_named(
    device: str, best: str, written: str, said: str | None, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the better one, why it is, what to write, and that it makes another job."""
    set_engine(bench.home / "jobs" / "summarize.toml", kind="transformers", dtype=written)
    resolving(monkeypatch, device, best)
    told = doctor(bench)
    hint = told["dtype"]["hint"]
    assert best in told["dtype"]["value"]
    assert (said is None) == (hint is None)
    if said is not None:
        assert said in hint
        assert 'Set engine.dtype to "auto"' in hint
        assert "another job" in hint
        assert ["dtype", "profile"] == [change["check"] for change in told["changes"]]


def test_what_blocks_comes_before_what_costs_and_what_helps(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model without weights, with which no run would begin, and a full disk; no word of what only helps."""
    folder = bench.home / "model"
    shutil.copytree(bench.model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    bench.model = folder
    set_engine(bench.write_spec(), kind="transformers")
    resolving(monkeypatch, "cpu", "float32")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    done = bench.run("doctor")
    actions = [line.split(":")[0] for line in done.out.splitlines() if line.startswith("  → ")]
    assert (69, ["  → model", "  → disk"]) == (done.code, actions)


def test_without_an_engine_it_is_69(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told first, with the command that installs one; also where the model is missing too."""

    def nothing(_: str) -> str:
        raise EngineUnavailableError("vLLM is not installed", "Install it: pip install 'batchrun[cpu]'")

    monkeypatch.setattr(engines, "resolve_kind", nothing)
    bench.model = Path("/no/such/folder")
    bench.write_spec()
    done = bench.run("doctor")
    assert 69 == done.code
    assert "✗ engine" in done.out
    actions = [line for line in done.out.splitlines() if line.startswith("  → ")]
    assert "  → engine: Install it: pip install 'batchrun[cpu]'" == actions[0]


def test_a_gpu_that_others_use_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As nvidia-smi tells it, in MiB; where all of it is free there is nothing to do."""
    set_engine(bench.home / "jobs" / "summarize.toml", kind="transformers")
    resolving(monkeypatch, "cuda", "bfloat16")
    script = bench.home / "nvidia-smi"
    monkeypatch.setenv("PATH", str(bench.home), prepend=os.pathsep)
    script.write_text("#!/bin/sh\necho '[N/A], [N/A]'\n")
    script.chmod(0o755)
    assert "GPU memory" not in doctor(bench)
    for free, is_told in ((142_000, False), (20_480, True)):
        script.write_text(f"#!/bin/sh\necho '{free}, 143360'\n")
        told = doctor(bench)["GPU memory"]
        assert f"{free / 1024:,.1f} GiB of 140.0 GiB free" == told["value"]
        assert is_told == (told["hint"] is not None)


def test_a_job_begun_otherwise_is_78(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a submit here would end."""
    set_engine(bench.home / "jobs" / "summarize.toml", kind="auto")
    monkeypatch.setattr(engines, "resolve_kind", lambda _: "lead")
    assert 0 == bench.submit(bench.corpus(texts(2))).code
    assert "begun, and goes on here" in doctor(bench)["job"]["value"]
    resolving(monkeypatch, "cuda", "bfloat16")
    done = bench.run("doctor", "--json")
    assert (78, 78) == (done.code, done.json["exit_code"])
    assert "--accept-engine" in done.json["job"]["hint"]


def test_locks_are_told_with_holder_time_and_progress(bench: Bench) -> None:
    """For a person and for a script."""
    job = bench.submit(bench.corpus(texts(3))).json["job_id"]
    paths = Workspace(home=bench.home).job(job, 0).corpus("abc")
    lock = RunLock(paths.lock, "night")
    record = RunRecord(
        job_id=job,
        run_id="night",
        seed=0,
        corpus_id="abc",
        corpus=["news.parquet"],
        state=RunState.RUNNING,
        first_planned_at=timestamp(),
        engine="lead",
        to_run=40,
        rows=RowCounts(computed=10),
    )
    RunLog(paths.runs, record)
    try:
        told = doctor(bench)
        text = bench.run("doctor").out
    finally:
        lock.release()
    assert f"{job}, news.parquet: run night (process " in text
    assert "ago: 10 of 40 documents done (25%)" in text
    [held] = told["locks"]
    assert (job, "night", ["news.parquet"], 10, 40) == tuple(
        held[name] for name in ("job_id", "run_id", "corpus", "computed", "to_run")
    )


def test_it_reads_no_weights_and_downloads_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that was never hashed is told as it is; a hub id is looked for in the cache alone."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(model, "_file_hash", lambda *_: pytest.fail("weights were read"))
    assert ("good", "summarize: new") == tuple(doctor(bench)["job"][key] for key in ("verdict", "value"))
    assert not (bench.home / "checkpoints").exists()
    asked = []

    def cached(*_: object, local_files_only: bool, **__: object) -> str:
        asked.append(local_files_only)
        raise LocalEntryNotFoundError("not in the cache")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", cached)
    bench.model = Path("somebody/some-model")
    bench.write_spec()
    done = bench.run("doctor", "--json")
    assert (0, [True]) == (done.code, asked)
    assert "hf download somebody/some-model --revision main" in done.json["model"]["hint"]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert 78 == bench.run("doctor").code


def test_the_other_jobs_are_told(bench: Bench) -> None:
    """Whether their model is here; one that is not readable is no reason to fail."""
    bench.write_spec(name="other")
    bench.write_spec(name="broken", extra="modle = 'x'\n")
    told = doctor(bench)
    assert f"other.toml: {bench.model}" in told["other jobs"]["value"]
    assert "broken.toml: Did you mean 'model'?" == told["other jobs"]["hint"]
    assert 0 == told["exit_code"]


def test_a_profile_is_told_with_what_it_advises(bench: Bench) -> None:
    """That of this engine, model and machine."""
    assert 0 == bench.submit(bench.corpus(texts(2))).code
    space, spec = Workspace(home=bench.home), bench.home / "jobs" / "summarize.toml"
    found = model.look_for_model(str(bench.model), "main", bench.home, space.models_record)
    assert found is not None
    of = Subject(
        engine="lead", engine_version="0.1.0", model=found.content, dtype="none", device=device_name("cpu")
    )
    profile = Profile(
        of=of,
        prefill=((10, 100.0),),
        decode=((1, 10.0),),
        max_num_batched_tokens=512,
        batched_tokens=((64, 100.0), (512, 150.0)),
        calibrated_at="2026-11-30T00:00:00+00:00",
    )
    write_profile(space.profiles, profile)
    [check] = [check for check in examine(space, spec).checks if check.name == "profile"]
    assert "of 2026-11-30" in check.value
    assert "Set max_num_batched_tokens = 512 in [engine]: it reads 1.50 times as fast as 64" == check.hint
    assert batched_tokens_advice(profile, 512) is None
    assert batched_tokens_advice(profile, 128) is None
