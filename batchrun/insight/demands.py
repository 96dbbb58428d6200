"""Rules of the work itself: reading, writing, and the one in the way of the other."""

from batchrun.insight.evidence import Evidence
from batchrun.insight.finding import MIN_REQUESTS, MOST, WORTH_SAYING, Bottleneck, Finding
from batchrun.insight.groups import enough, grows, is_flat, most_alike, reads_longer, spread
from batchrun.insight.shares import taken, useful_reading

HALF_GROWN = 0.5
"""The power of the number of sequences with which intervals grow, from which more sequences write hardly more."""
JUMP = 3.0
"""Usual intervals between tokens, in a step that reads of a long prompt what its budget holds."""
TOLD_APART = 0.2
"""The r² from which long prompts explain what others wait."""


def prefill(evidence: Evidence) -> Finding | None:
    """Reading has most of the time; where time can not be divided, it grows with the input while intervals do not."""
    groups = enough(evidence.by_length)
    share = useful_reading(evidence)
    if share is None:
        if not (grows(groups, "prefill_ms") and is_flat(groups, "tpot_ms") and reads_longer(evidence)):
            return None
    elif share < MOST:
        return None
    grown = spread(groups, "prefill_ms", "prefill") or f"n={evidence.requests.num_timed:,}"
    flat = spread(groups, "tpot_ms", "the time of an output token")
    return Finding(
        name=Bottleneck.PREFILL,
        share=share,
        evidence=f"{taken('reading', share, evidence)}{grown}{'; ' + flat if flat else ''}",
        action=_faster_reading(evidence),
    )


def _faster_reading(evidence: Evidence) -> str:
    profile, budget = evidence.record.profile, evidence.spec.engine.max_num_batched_tokens
    better = None if profile is None else profile.better_batched_tokens(budget)
    if better is not None:
        return (
            f"set engine.max_num_batched_tokens from {budget:,} to {better:,}: "
            "the profile has it as the one that reads fastest"
        )
    return "read on more machines: submit with --shard 1/2 on one and --shard 2/2 on another, or shorten the inputs"


def decode(evidence: Evidence) -> Finding | None:
    """Writing has most of the time; where time can not be divided, intervals grow with sequences at one length."""
    time, alike = evidence.time, most_alike(evidence)
    share = None if time is None else time.writing
    if share is None:
        if not grows(alike, "tpot_ms") or reads_longer(evidence):
            return None
    elif share < MOST:
        return None
    growth = None if time is None else time.growth
    told = [
        _growth_text(growth, 0.0 if time is None else time.running),
        spread(alike, "tpot_ms", "the time of an output token"),
        spread(enough(evidence.by_length), "tpot_ms", "over lengths of input the time of an output token"),
    ]
    return Finding(
        name=Bottleneck.DECODE,
        share=share,
        evidence=taken("writing", share, evidence)
        + ("; ".join(filter(None, told)) or f"n={evidence.requests.num_timed:,}"),
        action=_faster_writing(evidence, growth),
    )


def _growth_text(growth: float | None, running: float) -> str:
    if growth is None:
        return ""
    return f"at {running:,.0f} running sequences the interval between tokens grows as the {growth:.2f}th power of their number"


def _faster_writing(evidence: Evidence, growth: float | None) -> str:
    time, most = evidence.time, evidence.max_num_seqs
    if time is not None and time.full_kv > HALF_GROWN and time.running < 0.9 * most:
        option = "kv_cache_memory_bytes" if evidence.device == "cpu" else "gpu_memory_utilization"
        return f"raise {option} in [engine.options]: the KV cache holds {time.running:,.0f} sequences of {most:,}"
    if growth is not None and growth < HALF_GROWN:
        return f"raise engine.max_num_seqs from {most:,} to {2 * most:,}: more sequences write more here"
    if evidence.kind == "vllm" and evidence.spec.engine.speculation == "off":
        return 'set engine.speculation to "ngram", if `batchrun calibrate CORPUS` says that it pays on these documents'
    median = evidence.requests.median_output_tokens
    return f"ask for shorter outputs in prompt.instruction: they have {median:,.0f} tokens in the median"


def interference(evidence: Evidence) -> Finding | None:
    """Requests waited for long prompts that were read while they wrote; not where reading has most of the time."""
    beside = evidence.beside
    is_told = beside.num_beside >= MIN_REQUESTS and beside.r2 >= TOLD_APART
    reading = useful_reading(evidence)
    chunk_ms = beside.chunk_ms(evidence.max_num_batched_tokens)
    if not is_told or beside.share < WORTH_SAYING or chunk_ms < JUMP * beside.itl_p50:
        return None
    if reading is not None and reading >= MOST:
        return None
    told = (
        f"of {beside.num_requests:,} requests {beside.num_beside:,} wrote while one of {beside.num_long:,} prompts of "
        f"{evidence.long_prompt:,} tokens or more was read, {min(evidence.max_num_batched_tokens, int(beside.long_tokens)):,} a "
        f"step in {chunk_ms:,.0f} ms; the interval between their tokens is {beside.itl_p50:,.0f} ms in the median, and each "
        f"such prompt cost them {beside.cost_ms:,.0f} ms (r² {beside.r2:.2f}); the share is that of the time of writing"
    )
    return Finding(
        name=Bottleneck.INTERFERENCE, share=beside.share, evidence=told, action=_smaller_chunks(evidence)
    )


def _smaller_chunks(evidence: Evidence) -> str:
    """A chunk that takes about two intervals; where chunks are as small already, a queue of their own."""
    beside = evidence.beside
    budget = evidence.max_num_batched_tokens
    tokens_a_ms = beside.long_tokens / max(beside.long_prefill_ms, 1e-9)
    wanted = max(512, 1 << max(0, int(2 * beside.itl_p50 * tokens_a_ms)).bit_length() - 1)
    if wanted < budget:
        return f"lower engine.max_num_batched_tokens from {budget:,} to {wanted:,}"
    return "give long documents a queue of their own: submit with --prefer longest"
