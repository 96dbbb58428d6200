"""Nights on the simulator's own clock, and the profile that its rates are."""

import random
from pathlib import Path

from batchrun.job import open_job
from batchrun.profile import Profile, write_profile
from batchrun.subject import subject_of
from batchrun.workspace import Workspace
from tests.commands import Bench, set_engine

PREFILL, DECODE, HALF_BATCH = 40.0, 60.0, 8.0
"""Tokens a second, and sequences: a few hundred short documents take hours."""
OPTIONS = {
    "prefill_tokens_per_s": PREFILL,
    "decode_tokens_per_s": DECODE,
    "decode_half_batch": HALF_BATCH,
    "kv_tokens": 20_000,
    "output_tokens": 24,
    "output_sigma": 0.6,
    "prefix_caching": "false",
    "clock": '"virtual"',
}
MAX_TOKENS, MAX_MODEL_LEN, MAX_NUM_SEQS = 64, 1024, 32


def write_night(bench: Bench, name: str = "summarize", *, long_documents: str = "truncate") -> Path:
    """A spec of the simulator, with these rates."""
    path = bench.write_spec("\n".join(f"{key} = {value}" for key, value in OPTIONS.items()), name)
    text = path.read_text().replace("max_tokens = 20", f"max_tokens = {MAX_TOKENS}")
    path.write_text(text.replace('policy = "fail"', f'policy = "{long_documents}"'))
    set_engine(path, max_model_len=MAX_MODEL_LEN, max_num_batched_tokens=512, max_num_seqs=MAX_NUM_SEQS)
    return path


def calibrate(bench: Bench, spec: Path, most: int = MAX_NUM_SEQS) -> None:
    """Write the profile of the spec's rates with up to `most` sequences, as `batchrun calibrate` would measure them."""
    space = Workspace(home=bench.home)
    job = open_job(space, spec, name=None, seed=0)
    numbers = [number for number in (1, 2, 4, 8, 16, 32) if number <= most]
    write_profile(
        space.profiles,
        Profile(
            of=subject_of(job, job.resolve()),
            prefill=((64, PREFILL), (1024, PREFILL)),
            decode=tuple((number, DECODE * number / (number + HALF_BATCH)) for number in numbers),
            max_num_batched_tokens=512,
            calibrated_at="2026-11-30T00:00:00Z",
        ),
    )


def night_texts(number: int, seed: int) -> list[str]:
    """Lengths of a real corpus' shape: a few are ten times as long as most."""
    numbers = random.Random(seed)  # noqa: S311 - texts, not secrets
    return [
        f"Night {seed} document {place} "
        + "tells of this and that, " * min(300, max(1, int(numbers.lognormvariate(2.5, 0.9))))
        for place in range(number)
    ]
