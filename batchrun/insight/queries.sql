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
