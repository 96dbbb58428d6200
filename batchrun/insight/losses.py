"""Rules of time that is lost: to the KV cache, to feeding, to padding, idle, at the tail, and read again."""

from batchrun.insight.evidence import Evidence, Requests
from batchrun.insight.finding import MIN_REQUESTS, WORTH_SAYING, Bottleneck, Finding
from batchrun.insight.shares import by_preemption, counted, is_worth, of_padding, of_reading, read_again
from batchrun.insight.time_use import TimeUse

PREEMPTED = 0.05
"""Of the requests."""
SAME_EDGE = 0.1
"""Of the median prompt: an edge of a bucket nearer than that divides prompts in the middle."""
MIN_SLICE = 64
"""Tokens of a slice below which reading again costs more than places are worth."""


def kv_cache(evidence: Evidence) -> Finding | None:
    """The KV cache was full, and sequences were preempted for it."""
    requests, time, metrics = evidence.requests, evidence.time, evidence.record.metrics
    if time is None or requests is None or metrics.num_preemptions < MIN_REQUESTS // 4:
        return None
    if time.full_kv < WORTH_SAYING or requests.num_preempted < PREEMPTED * requests.num_requests:
        return None
    told = (
        f"the KV cache was over 90% full for {time.full_kv:.0%} of the time, and sequences were preempted: "
        f"{metrics.num_preemptions:,} times, {requests.num_preempted:,} of {requests.num_requests:,} requests; up to "
        f"{by_preemption(evidence):.0%} of the prompt tokens read were read again for it"
    )
    return Finding(
        name=Bottleneck.KV_CACHE,
        share=of_reading(evidence, by_preemption(evidence)),
        evidence=told,
        action=_less_in_cache(evidence, requests),
    )


def _less_in_cache(evidence: Evidence, requests: Requests) -> str:
    """Shorter slices where it is outputs that fill the cache and a slice is long for them, else fewer sequences."""
    slice_tokens, most = evidence.spec.residency.slice_tokens, evidence.max_num_seqs
    outgrows = requests.long_output_tokens > requests.median_input_tokens
    if outgrows and requests.long_output_tokens > slice_tokens > MIN_SLICE:
        return f"lower residency.slice_tokens from {slice_tokens:,} to {max(MIN_SLICE, slice_tokens // 2):,}"
    fitting = int(evidence.record.limits.get("kv_tokens", most * requests.held_tokens) / requests.held_tokens)
    return f"lower engine.max_num_seqs from {most:,} to {max(1, min(fitting, most // 2)):,}"


def feeding(evidence: Evidence) -> Finding | None:
    """Work waited while the engine had room for it."""
    time = evidence.time
    if time is None or time.feeding < WORTH_SAYING:
        return None
    most = evidence.max_num_seqs
    told = (
        f"documents waited while {time.running:,.0f} sequences ran where {most:,} could and the KV cache was "
        f"{time.kv_cache_usage:.0%} full (medians, n={time.num_intervals:,} samples); {time.starved_steps:.0%} of "
        f"{evidence.record.metrics.num_steps:,} steps of the engine were given less than they could take"
    )
    return Finding(
        name=Bottleneck.FEEDING,
        share=time.feeding,
        evidence=told,
        action=_better_fed(evidence, time),
    )


def _better_fed(evidence: Evidence, time: TimeUse) -> str:
    requests, cap = evidence.requests, evidence.spec.output.max_tokens
    if requests is not None and time.starved_steps < WORTH_SAYING and requests.long_output_tokens < cap / 2:
        return (
            f"lower output.max_tokens from {cap:,} to {_roomy(requests):,}: the KV cache is kept free for outputs that do "
            f"not come, 95% end by {requests.long_output_tokens:,.0f}"
        )
    if evidence.record.metrics.cpu_seconds.get("feeder", 0.0) >= time.feeding * time.seconds / 2:
        return "leave batchrun a CPU core beside the engine's"
    return "put the workspace's buckets/ on a local disk"


def _roomy(requests: Requests) -> int:
    """An output cap that 95 % of outputs do not come near."""
    return max(16, -(-int(1.25 * requests.long_output_tokens) // 16) * 16)


def padding(evidence: Evidence) -> Finding | None:
    """A padded engine filled batches up to their longest prompt."""
    padded = evidence.record.metrics.padding_share
    share = of_padding(evidence)
    if not is_worth(share, padded):
        return None
    return Finding(
        name=Bottleneck.PADDING,
        share=share,
        evidence="; ".join(
            [
                f"{padded:.0%} of the prompt tokens computed only filled batches up to their longest prompt",
                *counted(evidence),
            ]
        ),
        action=_more_alike(evidence),
    )


def _more_alike(evidence: Evidence) -> str:
    """An edge in the middle of the prompts; where there is one already, fewer in a batch."""
    edges, requests, most = evidence.spec.buckets.edges, evidence.requests, evidence.max_num_seqs
    median = None if requests is None else round(requests.median_input_tokens)
    if median and all(abs(edge - median) > SAME_EDGE * median for edge in edges):
        return f"set buckets.edges to {sorted({*edges, median})}: a batch never mixes two buckets"
    return f"lower engine.max_num_seqs from {most:,} to {max(1, most // 2):,}: fewer prompts are more alike"


def idle(evidence: Evidence) -> Finding | None:
    """The engine had nothing to compute, though it was not the feeding."""
    time, metrics = evidence.time, evidence.record.metrics
    if time is None or time.idle < WORTH_SAYING:
        return None
    told = (
        f"the engine had nothing to compute for {time.idle * time.seconds:,.1f} s of {time.seconds:,.1f}; finished rows waited "
        f"{metrics.store_wait_seconds:,.1f} s for the disk, the engine {metrics.collector_wait_seconds:,.1f} s until its "
        f"outputs were taken ({metrics.num_steps:,} steps)"
    )
    return Finding(name=Bottleneck.IDLE, share=time.idle, evidence=told, action=_less_idle(evidence))


def _less_idle(evidence: Evidence) -> str:
    metrics, time = evidence.record.metrics, evidence.time
    half = 0.0 if time is None else time.idle * time.seconds / 2
    if metrics.store_wait_seconds >= half:
        return "put the workspace's checkpoints/ on a faster disk"
    is_own = evidence.spec.engine.options.get("own_process", False)
    if metrics.collector_wait_seconds < half and evidence.kind == "vllm" and not is_own:
        return (
            "set own_process = true in [engine.options]: the engine then does not wait for batchrun's threads"
        )
    return "leave batchrun a CPU core beside the engine's"


def tail(evidence: Evidence) -> Finding | None:
    """Places stood empty at the end, for longer than the longest output needs from the run's beginning."""
    time, requests = evidence.time, evidence.requests
    if time is None:
        return None
    longest = 0.0 if requests is None else requests.longest_seconds
    share = min(time.tail, 1 - longest / time.seconds)
    if share < WORTH_SAYING:
        return None
    told = [
        f"when no document waited any more, places of the {time.running:,.0f} sequences that usually ran stood empty",
        *([f"the longest output took {longest:,.1f} s of {time.seconds:,.1f}"] if longest else []),
        *([] if requests is None else [_last_output(requests)]),
    ]
    return Finding(
        name=Bottleneck.TAIL, share=share, evidence="; ".join(told), action=_shorter_tail(evidence)
    )


def _last_output(requests: Requests) -> str:
    return (
        f"the last to end wrote {requests.last_output_tokens:,} tokens, where {requests.median_output_tokens:,.0f} is the "
        f"median (n={requests.num_outputs:,} outputs)"
    )


def _shorter_tail(evidence: Evidence) -> str:
    requests, cap = evidence.requests, evidence.spec.output.max_tokens
    if requests is not None and _is_long_output(requests):
        return (
            f"lower output.max_tokens from {cap:,} to {_roomy(requests):,}: 95% of outputs end by "
            f"{requests.long_output_tokens:,.0f}"
        )
    return "begin with long documents: submit with --prefer longest"


def _is_long_output(requests: Requests) -> bool:
    """Whether the last output was last for its own length, not for that of its document."""
    is_long_input = requests.last_is_nested or requests.last_input_tokens > 2 * requests.median_input_tokens
    return not is_long_input and requests.last_output_tokens > 2 * requests.long_output_tokens


def recomputation(evidence: Evidence) -> Finding | None:
    """Prompts were read again, and not for preemptions."""
    again = read_again(evidence) - by_preemption(evidence)
    share = of_reading(evidence, again)
    if not is_worth(share, again):
        return None
    metrics = evidence.record.metrics
    told = [
        f"{again:.0%} of the prompt tokens read had been read before: {metrics.num_slices:,} slices of outputs that went on, "
        f"{metrics.num_engine_deaths:,} deaths of the engine",
        *counted(evidence),
    ]
    return Finding(
        name=Bottleneck.RECOMPUTATION, share=share, evidence="; ".join(told), action=_read_once(evidence)
    )


def _read_once(evidence: Evidence) -> str:
    slice_tokens, metrics = evidence.spec.residency.slice_tokens, evidence.record.metrics
    if metrics.num_slices:
        long = 0 if evidence.requests is None else int(evidence.requests.long_output_tokens)
        wanted = max(2 * slice_tokens, 1 << max(0, long - 1).bit_length())
        return f"raise residency.slice_tokens from {slice_tokens:,} to {wanted:,}"
    return "find out why the engine died: the run's warnings say it (batchrun status --json)"
