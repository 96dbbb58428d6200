"""Rules of the work itself: reading, writing, and the one in the way of the other.

Where one kind of work has most of the time, that is what is named: that requests wait for long prompts is told beside
neither reading nor, unless it is the larger part of the time of writing, writing.
"""

from batchrun.insight.evidence import Evidence
from batchrun.insight.finding import MIN_REQUESTS, MOST, WORTH_SAYING, Bottleneck, Finding
from batchrun.insight.groups import flat_text, grows, growth_text, is_flat, most_alike, reads_longer
from batchrun.insight.shares import counted, taken, useful_reading

HALF_GROWN = 0.5
"""The power of the number of sequences with which intervals grow, from which more sequences write hardly more."""
JUMP = 3.0
"""Usual intervals between tokens, in a step that reads of a long prompt what its budget holds."""
TOLD_APART = 0.2
"""The r² from which long prompts explain what others wait."""
LARGER = 0.5
"""Of the time of writing."""
OUTPUT_TOKEN = "the time of an output token (TPOT)"  # noqa: S105 - no secret


def prefill(evidence: Evidence) -> Finding | None:
    """Reading has most of the time; where time can not be divided, it grows with the input while intervals do not."""
    if not _reads_most(evidence):
        return None
    share, groups = useful_reading(evidence), evidence.by_length
    told = [
        taken("reading", share, evidence),
        growth_text(groups, "prefill_ms", "with the length of input prefill"),
        flat_text(groups, "tpot_ms", OUTPUT_TOKEN),
    ]
    return Finding(
        name=Bottleneck.PREFILL,
        share=share,
        evidence=_joined(told, evidence),
        action=_faster_reading(evidence),
    )


def _reads_most(evidence: Evidence) -> bool:
    share, groups = useful_reading(evidence), evidence.by_length
    if share is not None:
        return share >= MOST
    return grows(groups, "prefill_ms") and is_flat(groups, "tpot_ms") and reads_longer(evidence)


def _joined(told: list[str], evidence: Evidence) -> str:
    """What there is to say; of time alone, with the number of requests beside it."""
    said = [one for one in told if one]
    return "; ".join(said if len(said) > 1 else [*said, *counted(evidence)])


def _faster_reading(evidence: Evidence) -> str:
    profile, budget = evidence.record.profile, evidence.spec.engine.max_num_batched_tokens
    better = None if profile is None else profile.better_batched_tokens(budget)
    if better is not None:
        return (
            f"set engine.max_num_batched_tokens from {budget:,} to {better:,}: "
            "the profile has it as the one that reads fastest"
        )
    return _more_machines(evidence)


def _more_machines(evidence: Evidence) -> str:
    shard = evidence.record.shard
    if shard is None:
        return "read on more machines: submit with --shard 1/2 on one and --shard 2/2 on another"
    return f"read on more machines: submit in {2 * shard.of:,} shards, not {shard.of:,}, each on a machine of its own"


def decode(evidence: Evidence) -> Finding | None:
    """Writing has most of the time; where time can not be divided, intervals grow with sequences at one length."""
    if not _writes_most(evidence) or (_waits(evidence) and evidence.beside.share > LARGER):
        return None
    time = evidence.time
    share = None if time is None else time.writing
    told = [
        taken("writing", share, evidence),
        _growth_text(evidence),
        growth_text(most_alike(evidence), "tpot_ms", f"with sequences at once {OUTPUT_TOKEN}"),
        flat_text(evidence.by_length, "tpot_ms", f"over lengths of input {OUTPUT_TOKEN}"),
    ]
    return Finding(
        name=Bottleneck.DECODE,
        share=share,
        evidence=_joined(told, evidence),
        action=_faster_writing(evidence),
    )


def _writes_most(evidence: Evidence) -> bool:
    share = None if evidence.time is None else evidence.time.writing
    if share is not None:
        return share >= MOST
    return grows(most_alike(evidence), "tpot_ms") and not reads_longer(evidence)


def _growth_text(evidence: Evidence) -> str:
    time = evidence.time
    if time is None or time.growth is None:
        return ""
    return (
        f"{time.running:,.0f} sequences ran at once, and each token took about {2**time.growth:.1f} times as long "
        "as it does with half as many"
    )


def _faster_writing(evidence: Evidence) -> str:
    time, most = evidence.time, evidence.max_num_seqs
    if time is not None and time.full_kv > HALF_GROWN and time.running < 0.9 * most:
        option = "kv_cache_memory_bytes" if evidence.device == "cpu" else "gpu_memory_utilization"
        return (
            f"raise {option} in [engine.options]: the KV cache holds {time.running:,.0f} sequences of the {most:,} that "
            "engine.max_num_seqs allows"
        )
    if time is not None and time.growth is not None and time.growth < HALF_GROWN:
        return f"raise engine.max_num_seqs from {most:,} to {2 * most:,}: more sequences at once write more tokens here"
    if evidence.kind == "vllm" and evidence.spec.engine.speculation == "off":
        return 'set engine.speculation to "ngram", if `batchrun calibrate CORPUS` says that it pays on these documents'
    requests = evidence.requests
    median = (
        "" if requests is None else f": they have {requests.median_output_tokens:,.0f} tokens in the median"
    )
    return f"ask for shorter outputs in prompt.instruction{median}"


def interference(evidence: Evidence) -> Finding | None:
    """Requests waited for long prompts that were read while they wrote."""
    beside, budget = evidence.beside, evidence.max_num_batched_tokens
    if not _waits(evidence) or _reads_most(evidence):
        return None
    if _writes_most(evidence) and beside.share <= LARGER:
        return None
    told = (
        f"{beside.num_beside:,} of {beside.num_requests:,} requests wrote while one of {beside.num_long:,} prompts of "
        f"{evidence.long_prompt:,} tokens or more was read: a step that reads {min(budget, int(beside.long_tokens)):,} of "
        f"its tokens takes {beside.chunk_ms(budget):,.0f} ms, the usual one between two tokens (ITL) "
        f"{beside.itl_p50:,.0f} ms; each such prompt made them wait {beside.cost_ms:,.0f} ms more, in all "
        f"{beside.share:.0%} of the time in which they wrote (r² {beside.r2:.2f})"
    )
    return Finding(
        name=Bottleneck.INTERFERENCE,
        share=_waiting(evidence),
        evidence=told,
        action=_smaller_chunks(evidence),
    )


def _waits(evidence: Evidence) -> bool:
    """Whether long prompts are what requests waited for: enough of them, long enough, and in steps that are long."""
    beside, share = evidence.beside, _waiting(evidence)
    is_told = beside.num_beside >= MIN_REQUESTS and beside.r2 >= TOLD_APART
    is_long = beside.chunk_ms(evidence.max_num_batched_tokens) >= JUMP * beside.itl_p50
    return is_told and is_long and (beside.share if share is None else share) >= WORTH_SAYING


def _waiting(evidence: Evidence) -> float | None:
    """Of the run's time, of which writing has a part, and of that what requests waited for long prompts. No more than
    it was: what they waited is among the time of reading, too.
    """
    time = evidence.time
    return None if time is None or time.writing is None else evidence.beside.share * time.writing


def _smaller_chunks(evidence: Evidence) -> str:
    """A chunk that takes about two intervals; where chunks are as small already, a queue of their own."""
    beside = evidence.beside
    budget = evidence.max_num_batched_tokens
    tokens_a_ms = beside.long_tokens / max(beside.long_prefill_ms, 1e-9)
    wanted = max(512, 1 << max(0, int(2 * beside.itl_p50 * tokens_a_ms)).bit_length() - 1)
    if wanted < budget:
        return f"lower engine.max_num_batched_tokens from {budget:,} to {wanted:,}"
    return "give long documents a queue of their own: submit with --prefer longest"
