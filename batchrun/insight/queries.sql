-- percentiles: of the requests in some files, by length of input and by sequences running at their end
WITH requests AS (
    SELECT
        *,
        len(list_filter($edges, lambda edge: edge <= input_tokens)) AS length,
        CAST(ceil(log2(greatest(running, 1))) AS INTEGER) AS concurrency,
        CASE WHEN output_tokens > 1 THEN decode_ms / (output_tokens - 1) END AS tpot_ms
    FROM read_parquet($files)
)
SELECT
    length,
    concurrency,
    count(*) AS num_requests,
    count(queue_ms) AS num_queue,
    count(prefill_ms) AS num_prefill,
    count(ttft_ms) AS num_ttft,
    count(tpot_ms) AS num_tpot,
    count(itl_p50) AS num_itl,
    avg(input_tokens) AS input_tokens,
    avg(output_tokens) AS output_tokens,
    approx_quantile(queue_ms, [0.5, 0.95, 0.99]) AS queue_ms,
    approx_quantile(prefill_ms, [0.5, 0.95, 0.99]) AS prefill_ms,
    approx_quantile(ttft_ms, [0.5, 0.95, 0.99]) AS ttft_ms,
    approx_quantile(tpot_ms, [0.5, 0.95, 0.99]) AS tpot_ms,
    approx_quantile(itl_p50, [0.5, 0.95, 0.99]) AS itl_p50,
    approx_quantile(itl_p95, [0.5, 0.95, 0.99]) AS itl_p95
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
    (SELECT count(*) FROM outputs) AS num_outputs,
    coalesce(sum(CAST(input_tokens AS DOUBLE) ** 2) / nullif(sum(input_tokens), 0), 0) AS input_tokens_of_a_token,
    coalesce(count(*) FILTER (preemptions > 0), 0) AS num_preempted,
    CAST(coalesce(sum(preemptions * (input_tokens + output_tokens / 2)), 0) AS DOUBLE) AS preempted_tokens,
    coalesce(approx_quantile(input_tokens + output_tokens, 0.9), 0) AS held_tokens,
    coalesce(approx_quantile(input_tokens, 0.5), 0) AS median_input_tokens,
    (SELECT coalesce(approx_quantile(output_tokens, 0.5), 0) FROM outputs) AS median_output_tokens,
    (SELECT coalesce(approx_quantile(output_tokens, 0.95), 0) FROM outputs) AS long_output_tokens,
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
        coalesce(preemptions, 0) AS preemptions
    FROM read_parquet($files)
    WHERE error_type IS NULL AND decode_ms > 0
), long_prompts AS (
    SELECT began_at AS moment, read_tokens, prefill_ms, count(*) OVER (ORDER BY began_at) AS number
    FROM requests WHERE read_tokens >= $long
), sampled AS (
    SELECT
        itl_p50,
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
    coalesce(approx_quantile(itl_p50, 0.5), 0) AS itl_p50,
    coalesce(sum(waited_ms) / sum(decode_ms), 0) AS waited_share,
    coalesce(sum(num_beside) / sum(decode_ms), 0) AS prompts_per_ms,
    CASE WHEN var_pop(num_beside / decode_ms) > 0 THEN
        regr_slope(waited_ms / decode_ms, num_beside / decode_ms) END AS ms_a_prompt,
    CASE WHEN var_pop(num_beside / decode_ms) > 0 AND var_pop(waited_ms / decode_ms) > 0 THEN
        regr_r2(waited_ms / decode_ms, num_beside / decode_ms) END AS r2,
    (SELECT count(*) FROM long_prompts) AS num_long,
    (SELECT coalesce(approx_quantile(prefill_ms, 0.5), 0) FROM long_prompts) AS long_prefill_ms,
    (SELECT coalesce(approx_quantile(read_tokens, 0.5), 0) FROM long_prompts) AS long_tokens
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

-- create_compared_requests: of run A (side 0) and run B (side 1)
CREATE TEMP TABLE compared_requests (
    side TINYINT, key BLOB, slice INTEGER, length TINYINT, failed BOOLEAN, finished_s DOUBLE, decode_ms DOUBLE,
    queue_ms DOUBLE, ttft_ms DOUBLE, tpot_ms DOUBLE, itl_p95 DOUBLE, output_tokens DOUBLE
)

-- add_compared_requests: those in the files of one side
INSERT INTO compared_requests
SELECT
    $side, key, slice,
    len(list_filter($edges, lambda edge: edge <= input_tokens)),
    error_type IS NOT NULL, finished_at, decode_ms, queue_ms, ttft_ms,
    CASE WHEN output_tokens > 1 THEN decode_ms / (output_tokens - 1) END, itl_p95, output_tokens
FROM read_parquet($files)

-- count_compared_requests: by length and side: all, and failed ones
SELECT length, side, count(*), count(*) FILTER (WHERE failed) FROM compared_requests GROUP BY ALL ORDER BY ALL

-- create_request_pairs: requests that both sides finished, the last of each call, with the length that A's has
CREATE TEMP TABLE request_pairs AS
WITH finished AS (
    SELECT * FROM compared_requests WHERE NOT failed
    QUALIFY row_number() OVER (PARTITION BY side, key, slice ORDER BY finished_s DESC) = 1
)
SELECT a.length, hash(a.key, a.slice) AS lot,
    a.finished_s AS finished_s_a, a.decode_ms AS decode_ms_a, a.queue_ms AS queue_ms_a, a.ttft_ms AS ttft_ms_a,
    a.tpot_ms AS tpot_ms_a, a.itl_p95 AS itl_p95_a, a.output_tokens AS output_tokens_a,
    b.finished_s AS finished_s_b, b.decode_ms AS decode_ms_b, b.queue_ms AS queue_ms_b, b.ttft_ms AS ttft_ms_b,
    b.tpot_ms AS tpot_ms_b, b.itl_p95 AS itl_p95_b, b.output_tokens AS output_tokens_b
FROM finished a JOIN finished b USING (key, slice)
WHERE a.side = 0 AND b.side = 1

-- count_request_pairs: by length
SELECT length, count(*) FROM request_pairs GROUP BY length ORDER BY length

-- request_pairs_of: pairs of a length, so many at most, in the order in which those of A ended
SELECT * FROM (SELECT * FROM request_pairs WHERE length = $length ORDER BY lot LIMIT $most) ORDER BY finished_s_a, lot

-- requests_of: finished requests of a side and a length, so many at most, in the order in which they ended
SELECT * FROM (
    SELECT finished_s, decode_ms, queue_ms, ttft_ms, tpot_ms, itl_p95, output_tokens, hash(key, slice) AS lot
    FROM compared_requests WHERE side = $side AND length = $length AND NOT failed ORDER BY lot LIMIT $most
) ORDER BY finished_s, lot

-- num_retried: documents of some request files that ended in an attempt after the first, and all
SELECT count(*) FILTER (WHERE attempt > 1), count(*)
FROM (SELECT max(attempt) AS attempt FROM read_parquet($files) GROUP BY coalesce(document_key, key))

-- create_plan_rows: rows of two plans, by the number of the row in its plan; a shard's own alone
CREATE TEMP TABLE plan_rows (
    side TINYINT, number BIGINT, path VARCHAR, "row" BIGINT, hash_hi UBIGINT, hash_lo UBIGINT, status VARCHAR
)

-- add_plan_rows: those of one side
INSERT INTO plan_rows
SELECT $side, file_row_number, path, "row", hash_hi, hash_lo, status
FROM read_parquet($plan, file_row_number = true, hive_partitioning = false)
JOIN given_sources ON given_sources.number = source
WHERE coalesce(hash_hi, (source + "row")::UBIGINT) % $of = $ordinal

-- match_by_text: rows of one text are one, with what planning said of it
CREATE TEMP TABLE matchable AS
SELECT side, min(number) AS number, hash_hi AS match_hi, hash_lo AS match_lo, hash_hi, hash_lo,
    any_value(status) AS status
FROM plan_rows WHERE hash_hi IS NOT NULL GROUP BY ALL

-- match_by_place: rows of one place are one
CREATE TEMP TABLE matchable AS
SELECT side, number, hash(path) AS match_hi, "row"::UBIGINT AS match_lo, hash_hi, hash_lo, status FROM plan_rows
QUALIFY row_number() OVER (PARTITION BY side, path, "row" ORDER BY number) = 1

-- create_summary_hashes: what the memo tables of both sides say of their keys
CREATE TEMP TABLE summary_hashes (side TINYINT, hash_hi UBIGINT, hash_lo UBIGINT, rank TINYINT, digest UBIGINT)

-- compared_summaries: each row or text of A and of B, and how its summaries stand to each other
CREATE TEMP TABLE compared_summaries AS
WITH standing AS (
    SELECT matchable.*, digest, CASE WHEN status IS NOT NULL THEN status WHEN rank = 2 THEN 'ok' WHEN rank = 1 THEN 'failed' ELSE 'pending' END AS state
    FROM matchable LEFT JOIN summary_hashes USING (side, hash_hi, hash_lo)
)
SELECT a.number AS number_a, b.number AS number_b, a.hash_hi AS a_hi, a.hash_lo AS a_lo, b.hash_hi AS b_hi, b.hash_lo AS b_lo,
    CASE
        WHEN b.number IS NULL THEN 'only_in_a'
        WHEN a.number IS NULL THEN 'only_in_b'
        WHEN a.state = 'skipped' OR b.state = 'skipped' THEN 'skipped'
        WHEN a.state = 'pending' OR b.state = 'pending' THEN 'pending'
        WHEN a.state = 'failed' AND b.state = 'failed' THEN 'failed_in_both'
        WHEN a.state = 'failed' THEN 'mended'
        WHEN b.state = 'failed' THEN 'became_failed'
        WHEN a.digest = b.digest THEN 'same'
        ELSE 'changed'
    END AS fate
FROM (SELECT * FROM standing WHERE side = 0) a
FULL JOIN (SELECT * FROM standing WHERE side = 1) b USING (match_hi, match_lo)

-- count_fates: of the rows or texts of both sides
SELECT fate, count(*) FROM compared_summaries GROUP BY fate

-- count_standing: rows of both plans by what plan and memo table say of them, and how many the plan alone decided
SELECT
    side, coalesce(status, CASE rank WHEN 2 THEN 'ok' WHEN 1 THEN 'failed' ELSE 'pending' END) AS standing,
    count(*), count(status)
FROM plan_rows LEFT JOIN summary_hashes USING (side, hash_hi, hash_lo)
GROUP BY side, standing

-- changed_summaries: the first of those with another summary
SELECT number_a, number_b, a_hi, a_lo, b_hi, b_lo FROM compared_summaries WHERE fate = 'changed' ORDER BY number_a LIMIT $most

-- asked_places: where the rows of keys that are asked for lie in a file
SELECT place FROM winner SEMI JOIN asked USING (hash_hi, hash_lo) WHERE file = $file ORDER BY place

-- document_places: where the verdicts on whole documents lie in a file
SELECT place FROM winner WHERE file = $file AND NOT is_nested ORDER BY place

-- count_keyless: of each side the rows of its plan without a key, and all
SELECT side, count(*) FILTER (WHERE hash_hi IS NULL), count(*) FROM plan_rows GROUP BY side ORDER BY side

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

-- rows_by_status: rows of a plan, a shard's own alone, by what plan and memo table say of them, each with the first of them
SELECT
    coalesce(plan.status, CASE winner.rank WHEN 2 THEN 'ok' WHEN 1 THEN 'failed' ELSE 'pending' END) AS status,
    coalesce(plan.error_type, winner.error_type) AS error_type,
    count(*) AS num_rows,
    min(file_row_number, 3) AS examples
FROM read_parquet($plan, file_row_number = true, hive_partitioning = false) plan
LEFT JOIN winner USING (hash_hi, hash_lo)
WHERE coalesce(hash_hi, (source + "row")::UBIGINT) % $of = $ordinal
GROUP BY ALL
ORDER BY num_rows DESC, status, error_type

-- documents: each text of a plan that has a verdict, at its first row; of one run, or of all
CREATE TEMP TABLE document AS
WITH planned AS (
    SELECT
        hash_hi, hash_lo, min(file_row_number) AS plan_row, count(*) AS num_rows,
        any_value(input_tokens) AS planned_tokens
    FROM read_parquet($plan, file_row_number = true, hive_partitioning = false)
    WHERE hash_hi % $of = $ordinal
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
