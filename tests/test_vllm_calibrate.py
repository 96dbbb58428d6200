"""`batchrun calibrate` on real vLLM, with the two-layer model, in a process of its own."""

import json

import msgspec
import pytest

from batchrun.engines.vllm_start import SPECULATION
from batchrun.errors import EngineUnavailableError
from batchrun.profile import Profile
from tests.commands import Bench, set_engine, texts
from tests.engines.requests import make_config

pytestmark = pytest.mark.engine


def test_a_profile_and_speculation_that_changes_no_token(bench: Bench) -> None:
    """Rates of reading and writing come out, all eight outputs are the same, and `plan` tells the time by it."""
    spec = bench.home / "jobs" / "summarize.toml"
    set_engine(spec, kind="vllm", dtype="float32", max_num_seqs=2, max_num_batched_tokens=512)
    corpus = bench.corpus(texts(12))
    process = bench.start("calibrate", corpus, "--seconds", "4", "--batched-tokens", "512", "--json")
    out, err = process.communicate(timeout=280)
    assert 0 == process.returncode, err
    said = json.loads(out.splitlines()[-1])
    profile = msgspec.convert(said["profile"], Profile)
    assert ["vllm", "float32", "off"] == [profile.of.engine, profile.of.dtype, profile.of.speculation]
    assert 128 == profile.prefill[0][0]
    assert 1 == profile.decode[0][0]
    assert [8, 8] == [said["speculation"][name] for name in ("num_documents", "num_equal")]
    assert "by the profile of" in bench.run("plan", corpus).out


def test_speculation_is_said_once(bench: Bench) -> None:
    """In the spec's own key or in the engine's options, not in both."""
    from batchrun import engines

    options = {"speculative_config": SPECULATION["ngram"]}
    config = make_config("vllm", bench.model, speculation="ngram", options=options)
    with pytest.raises(EngineUnavailableError, match=r"speculative_config stands beside engine\.speculation"):
        engines.start(config)
