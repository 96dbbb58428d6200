"""`batchrun calibrate`: the profile of an engine whose rates are known, and what it advises."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchrun.engines.base import EngineConfig
from batchrun.profile import Profile
from tests.commands import Bench, Result, set_engine, texts
from tests.engines.virtual import LIMITS, VirtualEngine

Start = Callable[[EngineConfig], VirtualEngine]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[EngineConfig, VirtualEngine]]:
    """Engines of 10,000 tokens/s read (8,192 batched tokens: 12,000) and 50 written by each sequence (with
    speculation: 80), in place of any that would be started.
    """
    engines: list[tuple[EngineConfig, VirtualEngine]] = []

    def start(config: EngineConfig) -> VirtualEngine:
        rate = 12_000.0 if config.max_num_batched_tokens == 8192 else 10_000.0
        each = 50.0 if config.speculation == "off" else 80.0
        limits = replace(
            LIMITS,
            max_model_len=config.max_model_len,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
        )
        engine = VirtualEngine(lambda _: rate, lambda running: each * running, limits)
        engines.append((config, engine))
        return engine

    monkeypatch.setattr("batchrun.engines.start", start)
    return engines


def write_spec(bench: Bench, **engine: Any) -> None:
    """The bench's job on another engine."""
    path = bench.write_spec()
    lines = {"kind": "vllm", "dtype": "float32", "max_num_seqs": 16, "max_num_batched_tokens": 4096} | engine
    set_engine(path, **lines)


def profile_of(result: Result) -> Profile:
    assert 0 == result.code, result.err
    path = Path(result.json["path"])
    profile = msgspec.json.decode(path.read_bytes(), type=Profile)
    assert profile == msgspec.convert(result.json["profile"], Profile)
    return profile


def test_known_rates_come_out(bench: Bench, started: list[tuple[EngineConfig, VirtualEngine]]) -> None:
    """Within 1 %; in the workspace, under the engine's name; every engine is closed."""
    write_spec(bench)
    result = bench.run("calibrate", "--json")
    profile = profile_of(result)
    assert [128, 511] == [length for length, _ in profile.prefill]
    assert [10_000, 10_000] == pytest.approx([rate for _, rate in profile.prefill], 0.01)
    assert [1, 2, 4, 8, 16] == [number for number, _ in profile.decode]
    assert [50 * n for n, _ in profile.decode] == pytest.approx([rate for _, rate in profile.decode], 0.01)
    assert bench.home / "checkpoints" / "profiles" == Path(result.json["path"]).parent
    assert Path(result.json["path"]).name.startswith("vllm-")
    assert profile.calibrated_at
    assert all(engine.is_closed for _, engine in started)


def test_another_token_budget_is_recommended(
    bench: Bench, started: list[tuple[EngineConfig, VirtualEngine]]
) -> None:
    """By default half and double are tried; the better one is named with what it brings."""
    write_spec(bench)
    result = bench.run("calibrate")
    assert [4096, 2048, 8192] == [config.max_num_batched_tokens for config, _ in started]
    assert "set max_num_batched_tokens = 8192 in [engine]: it reads 1.20 times as fast as 4096" in result.out
    assert "  8,192" in result.out
    started.clear()
    given = bench.run("calibrate", "--batched-tokens", "1024,2048", "--json")
    assert 4096 == profile_of(given).max_num_batched_tokens
    assert [] == given.json["advice"]
    assert [4096, 1024, 2048] == [config.max_num_batched_tokens for config, _ in started]


def test_no_engine_is_loaded_that_there_is_no_time_for(
    bench: Bench, started: list[tuple[EngineConfig, VirtualEngine]]
) -> None:
    """Half and double are left out, and it is said how they are had."""
    write_spec(bench)
    result = bench.run("calibrate", "--seconds", "1")
    assert [4096] == [config.max_num_batched_tokens for config, _ in started]
    assert "no time to try max_num_batched_tokens 2,048: give --seconds, or --batched-tokens" in result.err
    assert "nothing to change in the spec" in result.out


def test_speculation_is_measured_on_the_documents(
    bench: Bench, started: list[tuple[EngineConfig, VirtualEngine]]
) -> None:
    """With a corpus its first documents are decoded with and without; the last engine is the one that has it."""
    write_spec(bench)
    corpus = bench.corpus(texts(20))
    result = bench.run("calibrate", corpus, "--batched-tokens", "4096", "--json")
    assert ["off", "ngram"] == [config.speculation for config, _ in started]
    found = result.json["speculation"]
    assert [8, 8, True] == [found["num_documents"], found["num_equal"], found["is_exact"]]
    assert 1.6 == pytest.approx(found["ratio"], 0.1)
    [advice] = result.json["advice"]
    assert advice.startswith('set speculation = "ngram" in [engine]: it writes 1.6')
    [prompts] = {tuple(map(len, (r.prompt_token_ids for r in engine.served[-8:]))) for _, engine in started}
    assert min(prompts) > 30
    assert {20} == {request.max_tokens for _, engine in started for request in engine.served[-8:]}


def test_a_job_that_speculates_is_compared_with_one_that_does_not(
    bench: Bench, started: list[tuple[EngineConfig, VirtualEngine]]
) -> None:
    """What is measured is the job's own engine; no engine is started after one that speculates."""
    write_spec(bench, speculation="ngram")
    corpus = bench.corpus(texts(20))
    result = bench.run("calibrate", corpus, "--json")
    assert ["off", "off", "off", "ngram"] == [config.speculation for config, _ in started]
    profile = profile_of(result)
    assert "ngram" == profile.of.speculation
    assert result.json["path"].endswith("-ngram.json")
    assert 80 == pytest.approx(profile.decode[0][1], 0.01)
    assert ["set max_num_batched_tokens"] == [line[:26] for line in result.json["advice"]]


@pytest.mark.parametrize("given", ["0", "many", "8192,-1"])
def test_token_budgets_are_numbers(bench: Bench, given: str) -> None:
    """Anything else is a usage error with an example."""
    result = bench.run("calibrate", "--batched-tokens", given)
    assert 2 == result.code
    assert "Give numbers of tokens: --batched-tokens 8192,16384" in result.err


def test_the_lead_engine_is_calibrated(bench: Bench) -> None:
    """As every engine is, through the protocol alone."""
    bench.write_spec("prefill_tokens_per_s = 2_000_000\ndecode_tokens_per_s = 1_000_000")
    result = bench.run("calibrate", "--seconds", "5", "--json")
    profile = profile_of(result)
    assert "lead" == profile.of.engine
    assert {"prefill_tokens_per_s": 2_000_000, "decode_tokens_per_s": 1_000_000} == profile.of.options


def test_the_simulator_gives_its_rates_back(bench: Bench) -> None:
    """On its virtual clock a night's rates are measured at once: those of its options, within 1 %."""
    rates = {"prefill_tokens_per_s": 500, "decode_tokens_per_s": 40, "decode_half_batch": 2}
    lines = [f"{name} = {value}" for name, value in rates.items()]
    spec = bench.write_spec("\n".join([*lines, 'clock = "virtual"', "prefix_caching = false"]))
    set_engine(spec, max_num_seqs=8, max_num_batched_tokens=2048)
    result = bench.run("calibrate", "--seconds", "600", "--batched-tokens", "2048", "--json")
    profile = profile_of(result)
    assert [500, 500] == pytest.approx([rate for _, rate in profile.prefill], 0.01)
    assert [1, 2, 4, 8] == [number for number, _ in profile.decode]
    assert [40 * n / (n + 2) for n in (1, 2, 4, 8)] == pytest.approx(
        [rate for _, rate in profile.decode], 0.01
    )
    assert [] == result.json["advice"]


def test_a_rehearsed_night_lasts_as_long_as_was_foretold(bench: Bench) -> None:
    """On a clock of its own a night passes in seconds: what is told of it are the night's seconds."""
    rates = {"prefill_tokens_per_s": 500, "decode_tokens_per_s": 40, "decode_half_batch": 2}
    lines = [f"{name} = {value}" for name, value in rates.items()]
    spec = bench.write_spec("\n".join([*lines, 'clock = "virtual"', "prefix_caching = false"]))
    set_engine(spec, max_num_seqs=8, max_num_batched_tokens=2048)
    bench.run("calibrate", "--seconds", "600", "--batched-tokens", "2048", "--json")
    done = bench.submit(bench.corpus(texts(200)))
    assert 0 == done.code, done.err
    [path] = bench.home.glob("checkpoints/*/seed-*/corpora/*/runs/*.json")
    record = json.loads(path.read_bytes())
    seconds, foretold = record["seconds"]["running"], record["estimated_seconds"]
    assert seconds > 10 * record["seconds"]["total"]
    assert foretold == pytest.approx(seconds, rel=0.1)
    assert 1.0 == pytest.approx(record["metrics"]["ceiling_share"], rel=0.1)


def test_an_engine_that_has_no_speculation_says_so(bench: Bench) -> None:
    """Before anything is loaded, with what to set."""
    spec = bench.write_spec()
    set_engine(spec, speculation="ngram")
    for words in (["calibrate"], ["submit", bench.corpus(texts(2))]):
        result = bench.run(*words)
        assert 78 == result.code
        assert "engine.speculation is 'ngram', which the lead engine does not have" in result.err
        assert 'Set engine.speculation to "off", or engine.kind to "vllm".' in result.err
