-- create_known: keys that are in the spool already or need not be
CREATE TEMP TABLE known (hash_hi UBIGINT, hash_lo UBIGINT)

-- fresh_rows: of the keys of a chunk, those not known, each at its first row
SELECT min(place) AS place FROM chunk ANTI JOIN known USING (hash_hi, hash_lo) GROUP BY hash_hi, hash_lo

-- create_settled: verdicts of the memo table
CREATE TEMP TABLE settled (hash_hi UBIGINT, hash_lo UBIGINT, done BOOLEAN, attempts INTEGER)

-- create_planned: the rows of the plan that want a summary
CREATE TEMP TABLE planned (ordinal BIGINT, hash_hi UBIGINT, hash_lo UBIGINT, input_tokens BIGINT)

-- distinct_planned: each key at its first row
CREATE TEMP TABLE first_rows AS
SELECT hash_hi, hash_lo, min(ordinal) AS ordinal, any_value(input_tokens) AS input_tokens
FROM planned GROUP BY hash_hi, hash_lo

-- todo: keys without a final verdict
CREATE TEMP TABLE todo AS
SELECT first_rows.*, coalesce(settled.attempts, 0) AS attempts
FROM first_rows LEFT JOIN settled USING (hash_hi, hash_lo)
WHERE NOT coalesce(settled.done, false)

-- counts: rows planned, distinct keys, keys to run
SELECT (SELECT count(*) FROM planned), (SELECT count(*) FROM first_rows), (SELECT count(*) FROM todo)

-- todo_lengths: input tokens of what is to run
SELECT input_tokens FROM todo

-- ordered_lengths: the same in input order
SELECT input_tokens FROM todo ORDER BY ordinal

-- create_spooled: the keys in the spool and where they lie
CREATE TEMP TABLE spooled (part INTEGER, place BIGINT, hash_hi UBIGINT, hash_lo UBIGINT)

-- selected: what to run, where it lies
CREATE TEMP TABLE selected AS
SELECT part, place, attempts, ordinal FROM todo JOIN spooled USING (hash_hi, hash_lo)

-- num_missing: what is to run and not in the spool
SELECT count(*) FROM todo ANTI JOIN spooled USING (hash_hi, hash_lo)

-- part_selection: what to run of one part
SELECT place, attempts, ordinal FROM selected WHERE part = $part ORDER BY place

-- create_ids: hashes of ids, to name duplicates
CREATE TEMP TABLE ids (id_hash UBIGINT)

-- num_duplicate_ids: rows whose id stood before
SELECT count(*) - count(DISTINCT id_hash) FROM ids

-- departed: of the distinct texts of a shard in an older plan, how many are not in a newer one, and how many are
SELECT count(*) FILTER (WHERE now.hash_hi IS NULL), count(now.hash_hi)
FROM (
    SELECT DISTINCT hash_hi, hash_lo FROM read_parquet($before, hive_partitioning = false)
    WHERE hash_hi IS NOT NULL AND hash_hi % $of = $ordinal
) before
LEFT JOIN (SELECT DISTINCT hash_hi, hash_lo FROM read_parquet($now, hive_partitioning = false) WHERE hash_hi IS NOT NULL) now
USING (hash_hi, hash_lo)
