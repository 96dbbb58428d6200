"""What the engine reaches by its profile, as a run is held against it; and whether the profile can be believed of it."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from batchrun.profile import Profile
from batchrun.run_record import RunRecord

MOST_BELIEVED = 1.5
"""Of the ceiling: an engine that reads and writes in one step reaches more than the whole, but not as much."""


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """By the profile, in tokens a second: reading alone at the run's mean prompt, and writing alone at its best.

    `doubt` says why the profile is no measure of this run; None where it is one.
    """

    calibrated_at: str
    device: str
    mean_input_tokens: float
    prefill_tokens_per_second: float
    decode_tokens_per_second: float
    share: float | None
    doubt: str | None


def ceiling_of(record: RunRecord, timeline: pa.Table, input_tokens: float) -> Ceiling | None:
    profile = record.profile
    if profile is None:
        return None
    return Ceiling(
        calibrated_at=profile.calibrated_at,
        device=profile.of.device,
        mean_input_tokens=input_tokens,
        prefill_tokens_per_second=profile.prefill_rate(max(1.0, input_tokens)),
        decode_tokens_per_second=profile.best_decode_rate,
        share=record.metrics.ceiling_share,
        doubt=doubt_of_run(record, timeline),
    )


def doubt_of_run(record: RunRecord, timeline: pa.Table) -> str | None:
    """Why the profile that a run was foretold by is no measure of it."""
    if record.profile is None:
        return None
    running = pc.max(timeline["running"]).as_py() or 0
    return doubt_of(record.profile, running, record.metrics.ceiling_share)


def doubt_of(profile: Profile, running: int, times_as_fast: float | None) -> str | None:
    """Why a profile is no measure of a run with so many sequences at once, and so much faster than by it."""
    measured = profile.decode[-1][0]
    if running > measured:
        return f"the profile covers {measured:,} sequences at once, and {running:,} ran"
    if times_as_fast is not None and times_as_fast > MOST_BELIEVED:
        return f"the run was {times_as_fast:.1f} times as fast as the profile says that the engine can be"
    return None
