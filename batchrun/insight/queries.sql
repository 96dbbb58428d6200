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

-- document_requests: what the requests of a run took, by document; `prefill` and `decode` are rates
CREATE TEMP TABLE asked AS
WITH request AS (
    SELECT *, hex(coalesce(document_key, key)) AS digits, input_tokens - cached_tokens AS computed_tokens
    FROM read_parquet($files)
)
SELECT
    ('0x' || digits[1:16])::UBIGINT AS hash_hi,
    ('0x' || digits[17:32])::UBIGINT AS hash_lo,
    count(*) AS num_requests,
    sum((ttft_ms + decode_ms) / 1000) AS seconds,
    sum(computed_tokens)::BIGINT AS computed_tokens,
    sum(CASE WHEN error_type IS NULL THEN computed_tokens / prefill.rate + output_tokens / decode.rate ELSE 0 END) AS weight
FROM request
JOIN prefill ON prefill.step = CAST(floor(4 * log2(greatest(input_tokens, 1))) AS INTEGER)
JOIN decode ON decode.running = greatest(least(request.running, $most), 1)
GROUP BY ALL

-- no_requests: the same of a run that left none
CREATE TEMP TABLE asked (
    hash_hi UBIGINT, hash_lo UBIGINT, num_requests BIGINT, seconds DOUBLE, computed_tokens BIGINT, weight DOUBLE
)

-- asked_in_all: documents that a run asked the engine for, and the weight of all of them
SELECT count(*), coalesce(sum(weight), 0) FROM asked

-- rows_by_status: rows of a plan by what plan and memo table say of them, each with the first of them
SELECT
    coalesce(plan.status, CASE winner.rank WHEN 2 THEN 'ok' WHEN 1 THEN 'failed' ELSE 'pending' END) AS status,
    coalesce(plan.error_type, winner.error_type) AS error_type,
    count(*) AS num_rows,
    min(file_row_number, 3) AS examples
FROM read_parquet($plan, file_row_number = true, hive_partitioning = false) plan
LEFT JOIN winner USING (hash_hi, hash_lo)
GROUP BY ALL
ORDER BY num_rows DESC, status, error_type

-- documents: each text of a plan that has a verdict, at its first row; of one run, or of all
CREATE TEMP TABLE document AS
WITH planned AS (
    SELECT
        hash_hi, hash_lo, min(file_row_number) AS plan_row, count(*) AS num_rows,
        any_value(input_tokens) AS planned_tokens
    FROM read_parquet($plan, file_row_number = true, hive_partitioning = false)
    WHERE hash_hi IS NOT NULL
    GROUP BY ALL
), memo AS (
    SELECT
        filename AS file, file_row_number AS place, input_tokens, output_tokens, kept_tokens, num_parts,
        list_contains(flags, 'capped') AS is_capped,
        list_contains(flags, 'repetition') AS repeats,
        list_contains(flags, 'truncated') AS is_truncated
    FROM read_parquet($segments, filename = true, file_row_number = true, hive_partitioning = false)
)
SELECT
    planned.*,
    winner.rank = 2 AS is_ok,
    CASE WHEN num_parts > 1 THEN len($edges) + 1 ELSE len(list_filter($edges, lambda edge: edge <= planned_tokens)) END
        AS bucket,
    memo.* EXCLUDE (file, place),
    num_requests, seconds, asked.computed_tokens, coalesce(weight, 0) AS weight
FROM planned
JOIN winner USING (hash_hi, hash_lo)
JOIN memo USING (file, place)
LEFT JOIN asked USING (hash_hi, hash_lo)
WHERE winner.rank > 0 AND (num_requests IS NOT NULL OR NOT $of_run)

-- input_lengths: documents by bucket and tokens of input as planned
SELECT bucket, planned_tokens, count(*) FROM document GROUP BY ALL ORDER BY ALL

-- output_lengths: summaries by bucket and tokens of output
SELECT bucket, output_tokens, count(*) FROM document WHERE is_ok GROUP BY ALL ORDER BY ALL

-- documents_by_bucket: what documents of a bucket came to together
SELECT
    bucket,
    count(*) AS num_documents,
    count(*) FILTER (is_ok) AS num_ok,
    count(*) FILTER (is_capped) AS num_capped,
    count(*) FILTER (repeats) AS num_repeating,
    count(*) FILTER (is_truncated) AS num_truncated,
    sum(kept_tokens) FILTER (is_ok AND output_tokens > 0) / nullif(sum(output_tokens) FILTER (is_ok), 0) AS compression,
    sum(weight) AS weight
FROM document
GROUP BY bucket
ORDER BY bucket

-- planned_in_all: prompt tokens of documents as planned
SELECT coalesce(sum(planned_tokens), 0)::BIGINT FROM document

-- listed: the slowest documents, the most expensive ones, and as many at random, though always the same
CREATE TEMP TABLE listed AS
(SELECT 'slowest' AS list, document.* FROM document WHERE seconds IS NOT NULL ORDER BY seconds DESC, plan_row LIMIT $most)
UNION ALL
(SELECT 'expensive', document.* FROM document WHERE weight > 0 ORDER BY weight DESC, plan_row LIMIT $most)
UNION ALL
(SELECT 'sample', document.* FROM document WHERE is_ok ORDER BY hash_lo, hash_hi LIMIT $sample)

-- listed_documents: what was listed, and how it stood in the lists
SELECT
    hash_hi, hash_lo, any_value(plan_row), any_value(num_rows), any_value(is_ok), any_value(bucket),
    any_value(planned_tokens), any_value(input_tokens), any_value(output_tokens), any_value(kept_tokens),
    any_value(num_parts), any_value(num_requests), any_value(seconds), any_value(computed_tokens), any_value(weight),
    list(list)
FROM listed
GROUP BY hash_hi, hash_lo

-- shown: keys of the documents whose summary or error is shown
CREATE TEMP TABLE shown AS
SELECT hash_hi, hash_lo FROM listed UNION SELECT hash_hi, hash_lo FROM examples

-- shown_places: where their rows lie in a segment
SELECT place FROM shown JOIN winner USING (hash_hi, hash_lo) WHERE file = $file ORDER BY place
