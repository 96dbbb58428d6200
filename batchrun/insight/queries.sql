-- percentiles: of the requests in some files, by length of input and by sequences running at their end
WITH requests AS (
    SELECT
        *,
        CASE WHEN input_tokens < 1024 THEN 0 WHEN input_tokens < 8192 THEN 1
             WHEN input_tokens < 32768 THEN 2 ELSE 3 END AS length,
        CAST(ceil(log2(greatest(running, 1))) AS INTEGER) AS concurrency,
        CASE WHEN output_tokens > 1 THEN decode_ms / (output_tokens - 1) END AS tpot_ms
    FROM read_parquet($files)
)
SELECT
    length,
    concurrency,
    count(*) AS num_requests,
    count(itl_p50) AS num_itl,
    avg(input_tokens) AS input_tokens,
    avg(output_tokens) AS output_tokens,
    quantile_cont(queue_ms, [0.5, 0.95, 0.99]) AS queue_ms,
    quantile_cont(prefill_ms, [0.5, 0.95, 0.99]) AS prefill_ms,
    quantile_cont(ttft_ms, [0.5, 0.95, 0.99]) AS ttft_ms,
    quantile_cont(tpot_ms, [0.5, 0.95, 0.99]) AS tpot_ms,
    quantile_cont(itl_p50, [0.5, 0.95, 0.99]) AS itl_p50,
    quantile_cont(itl_p95, [0.5, 0.95, 0.99]) AS itl_p95
FROM requests
WHERE error_type IS NULL
GROUP BY GROUPING SETS ((length), (concurrency), (length, concurrency))
ORDER BY ALL NULLS LAST

-- requests_in_all: of the requests in some files, what they came to together
WITH requests AS (
    SELECT * FROM read_parquet($files) WHERE error_type IS NULL
), outputs AS (
    SELECT
        CAST(sum(output_tokens) AS BIGINT) AS output_tokens,
        min(input_tokens) AS input_tokens,
        sum(prefill_ms + decode_ms) / 1000 AS seconds,
        bool_or(document_key IS NOT NULL) AS is_nested,
        max(finished_at) AS finished_at
    FROM requests GROUP BY key, attempt
), last_one AS (
    SELECT * FROM outputs ORDER BY finished_at DESC LIMIT 1
)
SELECT
    count(*) AS num_requests,
    count(prefill_ms) AS num_timed,
    count(itl_p50) AS num_itl,
    CAST(coalesce(sum(input_tokens), 0) AS BIGINT) AS input_tokens,
    coalesce(sum(CAST(input_tokens AS DOUBLE) ** 2) / nullif(sum(input_tokens), 0), 0) AS input_tokens_of_a_token,
    coalesce(count(*) FILTER (preemptions > 0), 0) AS num_preempted,
    CAST(coalesce(sum(preemptions * (input_tokens + output_tokens / 2)), 0) AS DOUBLE) AS preempted_tokens,
    coalesce(quantile_cont(input_tokens + output_tokens, 0.9), 0) AS held_tokens,
    coalesce(quantile_cont(input_tokens, 0.5), 0) AS median_input_tokens,
    (SELECT coalesce(quantile_cont(output_tokens, 0.5), 0) FROM outputs) AS median_output_tokens,
    (SELECT coalesce(quantile_cont(output_tokens, 0.95), 0) FROM outputs) AS long_output_tokens,
    (SELECT coalesce(max(seconds), 0) FROM outputs) AS longest_seconds,
    (SELECT output_tokens FROM last_one) AS last_output_tokens,
    (SELECT input_tokens FROM last_one) AS last_input_tokens,
    (SELECT is_nested FROM last_one) AS last_is_nested
FROM requests

-- beside: what the reading of long prompts cost the requests in some files whose intervals between tokens were taken
WITH requests AS (
    SELECT
        finished_at,
        finished_at - decode_ms / 1000 AS began_at,
        input_tokens - cached_tokens AS read_tokens,
        prefill_ms,
        decode_ms,
        output_tokens,
        itl_p50,
        itl_p95,
        coalesce(preemptions, 0) AS preemptions
    FROM read_parquet($files)
    WHERE error_type IS NULL AND decode_ms > 0
), long_prompts AS (
    SELECT began_at AS moment, read_tokens, prefill_ms, row_number() OVER (ORDER BY began_at) AS number
    FROM requests WHERE read_tokens >= $long
), sampled AS (
    SELECT
        itl_p50,
        itl_p95,
        decode_ms,
        greatest(0, decode_ms - itl_p50 * (output_tokens - 1)) AS waited_ms,
        coalesce(at_end.number, 0) - coalesce(at_start.number, 0) AS num_beside
    FROM requests
    ASOF LEFT JOIN long_prompts AS at_start ON requests.began_at >= at_start.moment
    ASOF LEFT JOIN long_prompts AS at_end ON requests.finished_at >= at_end.moment
    WHERE itl_p50 > 0 AND preemptions = 0 AND output_tokens >= $enough
)
SELECT
    count(*) AS num_requests,
    count(*) FILTER (num_beside > 0) AS num_beside,
    coalesce(quantile_cont(itl_p50, 0.5), 0) AS itl_p50,
    coalesce(quantile_cont(itl_p95, 0.5), 0) AS itl_p95,
    coalesce(sum(waited_ms) / sum(decode_ms), 0) AS waited_share,
    coalesce(sum(num_beside) / sum(decode_ms), 0) AS prompts_per_ms,
    CASE WHEN var_pop(num_beside / decode_ms) > 0 THEN
        regr_slope(waited_ms / decode_ms, num_beside / decode_ms) END AS ms_a_prompt,
    CASE WHEN var_pop(num_beside / decode_ms) > 0 AND var_pop(waited_ms / decode_ms) > 0 THEN
        regr_r2(waited_ms / decode_ms, num_beside / decode_ms) END AS r2,
    (SELECT count(*) FROM long_prompts) AS num_long,
    (SELECT coalesce(quantile_cont(prefill_ms, 0.5), 0) FROM long_prompts) AS long_prefill_ms,
    (SELECT coalesce(quantile_cont(read_tokens, 0.5), 0) FROM long_prompts) AS long_tokens
FROM sampled

-- attempts: of the requests in some files, first attempts, those after a failure, later slices and what was cut off
SELECT
    CASE WHEN finish_reason = 'abort' THEN 'aborted' WHEN attempt > 1 THEN 'retry' WHEN slice > 0 THEN 'slice'
         ELSE 'first' END AS kind,
    count(*), sum(input_tokens), sum(cached_tokens), sum(output_tokens)
FROM read_parquet($files)
GROUP BY kind

-- documents_by_length: those that requests are of, and the tokens that their calls read, by the number of $edges reached
WITH calls AS (
    SELECT coalesce(document_key, key) AS document, key, arg_min(input_tokens, slice) AS input_tokens
    FROM read_parquet($files) WHERE error_type IS NULL AND finish_reason <> 'abort'
    GROUP BY document, key
), documents AS (SELECT document, sum(input_tokens) AS tokens FROM calls GROUP BY document)
SELECT len(list_filter($edges, lambda edge: edge <= tokens)) AS length, count(*), CAST(sum(tokens) AS BIGINT)
FROM documents GROUP BY length ORDER BY length

-- calls_by_output: how many calls wrote so many tokens, over all their slices
WITH slices AS (
    SELECT key, slice, max(output_tokens) AS output_tokens
    FROM read_parquet($files) WHERE error_type IS NULL AND finish_reason <> 'abort'
    GROUP BY key, slice
), calls AS (SELECT key, CAST(sum(output_tokens) AS BIGINT) AS tokens FROM slices GROUP BY key)
SELECT tokens, count(*) FROM calls GROUP BY tokens ORDER BY tokens
