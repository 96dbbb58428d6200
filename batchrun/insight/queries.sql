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

-- create_compared_requests: of run A (side 0) and run B (side 1)
CREATE TEMP TABLE compared_requests (
    side TINYINT, key BLOB, slice INTEGER, length TINYINT, failed BOOLEAN, running INTEGER, finished_at DOUBLE,
    queue_ms DOUBLE, ttft_ms DOUBLE, tpot_ms DOUBLE, itl_p95 DOUBLE, output_tokens DOUBLE
)

-- add_compared_requests: those in the files of one side
INSERT INTO compared_requests
SELECT
    $side, key, slice,
    CASE WHEN input_tokens < 1024 THEN 0 WHEN input_tokens < 8192 THEN 1 WHEN input_tokens < 32768 THEN 2 ELSE 3 END,
    error_type IS NOT NULL, running, finished_at, queue_ms, ttft_ms,
    CASE WHEN output_tokens > 1 THEN decode_ms / (output_tokens - 1) END, itl_p95, output_tokens
FROM read_parquet($files)

-- count_compared_requests: by length and side: all, and failed ones
SELECT length, side, count(*), count(*) FILTER (WHERE failed) FROM compared_requests GROUP BY ALL ORDER BY ALL

-- create_request_pairs: requests that both sides finished, the last of each call, with the length that A's has
CREATE TEMP TABLE request_pairs AS
WITH finished AS (
    SELECT * FROM compared_requests WHERE NOT failed
    QUALIFY row_number() OVER (PARTITION BY side, key, slice ORDER BY finished_at DESC) = 1
)
SELECT a.length, a.finished_at, hash(a.key, a.slice) AS lot, greatest(a.running, b.running) AS running,
    a.queue_ms AS queue_a, a.ttft_ms AS ttft_a, a.tpot_ms AS tpot_a, a.itl_p95 AS itl_a, a.output_tokens AS output_a,
    b.queue_ms AS queue_b, b.ttft_ms AS ttft_b, b.tpot_ms AS tpot_b, b.itl_p95 AS itl_b, b.output_tokens AS output_b
FROM finished a JOIN finished b USING (key, slice)
WHERE a.side = 0 AND b.side = 1

-- count_request_pairs: by length
SELECT length, count(*) FROM request_pairs GROUP BY length ORDER BY length

-- request_pairs_of: pairs of a length, so many at most, in the order in which those of A ended
SELECT * FROM (SELECT * FROM request_pairs WHERE length = $length ORDER BY lot LIMIT $most) ORDER BY finished_at, lot

-- requests_of: finished requests of a side and a length, so many at most, in the order in which they ended
SELECT * FROM (
    SELECT finished_at, running, queue_ms, ttft_ms, tpot_ms, itl_p95, output_tokens, hash(key, slice) AS lot
    FROM compared_requests WHERE side = $side AND length = $length AND NOT failed ORDER BY lot LIMIT $most
) ORDER BY finished_at, lot

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

-- match_by_text: rows of one text are one
CREATE TEMP TABLE matchable AS
SELECT side, min(number) AS number, hash_hi AS match_hi, hash_lo AS match_lo, hash_hi, hash_lo, NULL::VARCHAR AS status
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

-- changed_summaries: the first of those with another summary
SELECT number_a, number_b, a_hi, a_lo, b_hi, b_lo FROM compared_summaries WHERE fate = 'changed' ORDER BY number_a LIMIT $most

-- asked_places: where the rows of keys that are asked for lie in a file
SELECT place FROM winner SEMI JOIN asked USING (hash_hi, hash_lo) WHERE file = $file ORDER BY place

-- document_places: where the verdicts on whole documents lie in a file
SELECT place FROM winner WHERE file = $file AND NOT is_nested ORDER BY place

-- count_keyless: of each side the rows of its plan without a key, and all
SELECT side, count(*) FILTER (WHERE hash_hi IS NULL), count(*) FROM plan_rows GROUP BY side ORDER BY side
