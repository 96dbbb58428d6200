-- narrow_rows: what decides about a row, and where it lies; $segments is the list of files
CREATE OR REPLACE TEMP TABLE narrow AS
SELECT
    hash_hi, hash_lo, rank, progress, content_hash, error_type, attempts, document_hi IS NOT NULL AS is_nested,
    filename AS file, file_row_number AS place
FROM read_parquet($segments, filename = true, file_row_number = true, hive_partitioning = false)

-- winners: one row a key, by precedence; equal rows are one
CREATE OR REPLACE TEMP TABLE winner AS
SELECT hash_hi, hash_lo, rank, error_type, attempts, is_nested, file, place
FROM narrow
QUALIFY row_number() OVER (
    PARTITION BY hash_hi, hash_lo ORDER BY rank DESC, progress DESC, content_hash ASC, file, place
) = 1

-- only_winners: the same where every key has one row, without sorting
CREATE OR REPLACE TEMP TABLE winner AS
SELECT hash_hi, hash_lo, rank, error_type, attempts, is_nested, file, place FROM narrow

-- has_rivals: whether a key has more than one row
SELECT count(*) > count(DISTINCT (hash_hi, hash_lo)) FROM narrow

-- settled_keys: keys with a verdict, whether it is final, and the failed attempts behind it
SELECT hash_hi, hash_lo, rank = 2 OR (rank = 1 AND error_type IN (SELECT unnest($final_errors))) AS done, attempts
FROM winner
WHERE rank > 0 AND NOT is_nested

-- winning_places: where the rows of the memo table lie in a file
SELECT place FROM winner WHERE file = $file ORDER BY place

-- create_planned: the keys of the plan, by its row group and the number of the row in it
CREATE TEMP TABLE planned (part INTEGER, ordinal BIGINT, hash_hi UBIGINT, hash_lo UBIGINT)

-- create_asking: the keys of the plan's rows that want a summary, by share
CREATE OR REPLACE TEMP TABLE asking (share INTEGER, hash_hi UBIGINT, hash_lo UBIGINT)

-- asking_by_rank: how many rows of each share the memo table has, by rank
SELECT share, rank, count(*) FROM asking LEFT JOIN winner USING (hash_hi, hash_lo) GROUP BY share, rank

-- located: for each row of the plan, where its memo row lies
CREATE TEMP TABLE located AS
SELECT part, ordinal, file, place FROM planned JOIN winner USING (hash_hi, hash_lo)

-- failed_located: the same, of the failed ones alone
CREATE TEMP TABLE located AS
SELECT part, ordinal, file, place FROM planned JOIN winner USING (hash_hi, hash_lo) WHERE rank = 1

-- located_rows: the rows of a file that the output needs, with the plan's row group and the row's number
SELECT place, part, ordinal FROM located WHERE file = $file ORDER BY place

-- count_winners: documents by rank
SELECT rank, count(*) FROM winner WHERE NOT is_nested GROUP BY rank

-- nested_places: where the finished calls of long documents lie in a file
SELECT place FROM winner WHERE file = $file AND is_nested AND rank = 2 ORDER BY place

-- partial_places: where the outputs lie in a file that are not whole
SELECT place FROM winner WHERE file = $file AND rank = 0 ORDER BY place

-- create_stored: keys of rows found, and the number of each one's row
CREATE OR REPLACE TEMP TABLE stored (hash_hi UBIGINT, hash_lo UBIGINT, number BIGINT)

-- stored_numbers: of the keys asked for, the rows of those found
SELECT number FROM stored SEMI JOIN asked USING (hash_hi, hash_lo)

-- no_winners: the empty memo table
CREATE OR REPLACE TEMP TABLE winner (
    hash_hi UBIGINT, hash_lo UBIGINT, rank TINYINT, error_type VARCHAR, attempts INTEGER,
    is_nested BOOLEAN, file VARCHAR, place BIGINT
)

-- recent_lengths: input and output tokens of summaries of documents that are one call
SELECT input_tokens, output_tokens
FROM read_parquet($segments, hive_partitioning = false)
WHERE status = 'ok' AND num_parts = 1 AND document_hi IS NULL
LIMIT 4096

-- has_partials: whether there is a row at all of an output that is not whole
SELECT count(*) > 0 FROM (
    SELECT 1 FROM read_parquet($segments, hive_partitioning = false) WHERE rank = 0 LIMIT 1
)

-- create_sources: numbers for the paths of a plan's sources
CREATE OR REPLACE TEMP TABLE sources AS SELECT path, min(number) AS number FROM given_sources GROUP BY path

-- published: an output as it stands on disk, narrow
CREATE OR REPLACE TEMP TABLE published AS
SELECT place, sources.number AS source, "row", status, error_type, hash(input_hash) AS key,
    summary IS NOT NULL AS has_summary, summary
FROM narrow_output LEFT JOIN sources ON path = source

-- published_by_status: rows of an output by status
SELECT status, count(*) FROM published GROUP BY status

-- due: what its plan wants of it
CREATE OR REPLACE TEMP TABLE due AS
SELECT file_row_number AS place, sources.number AS source, "row", status, error_type, hash_hi, hash_lo,
    hash(CASE WHEN hash_hi IS NOT NULL THEN format('{:016x}{:016x}', hash_hi, hash_lo) END) AS key
FROM read_parquet($plan, file_row_number = true, hive_partitioning = false) rows
JOIN given_sources ON given_sources.number = rows.source JOIN sources USING (path)

-- memo: what the memo table says of each row due
CREATE OR REPLACE TEMP TABLE memo (place BIGINT, status VARCHAR, summary UBIGINT)

-- due_places: where the rows due lie in a segment
SELECT winner.place, due.place AS due_place FROM due JOIN winner USING (hash_hi, hash_lo)
WHERE winner.file = $file ORDER BY winner.place

-- create_narrow_output: an output without its summaries, but for their hashes
CREATE OR REPLACE TEMP TABLE narrow_output (
    place BIGINT, source VARCHAR, "row" BIGINT, status VARCHAR, error_type VARCHAR, input_hash VARCHAR, summary UBIGINT
)

-- wrong_number: a row that is not in the output as often as in the plan, and how often it is in each
SELECT source, "row", coalesce(wanted.number, 0), coalesce(found.number, 0)
FROM (SELECT source, "row", count(*) AS number FROM due GROUP BY ALL) wanted
FULL JOIN (SELECT source, "row", count(*) AS number FROM published GROUP BY ALL) found USING (source, "row")
WHERE wanted.number IS DISTINCT FROM found.number
ORDER BY source, "row" LIMIT 1

-- wrong_place: the first place where another row stands, and the row that belongs there
SELECT published.source, published."row", due.source, due."row"
FROM due JOIN published USING (place)
WHERE (published.source, published."row") IS DISTINCT FROM (due.source, due."row")
ORDER BY place LIMIT 1

-- wrong_row: the first row that is not what plan and memo table say of it
SELECT due.source, due."row", CASE
    WHEN published.key IS DISTINCT FROM due.key THEN 'has another input_hash than the plan'
    WHEN published.status IS NULL OR published.status NOT IN ('ok', 'failed', 'skipped', 'pending') THEN 'has no status'
    WHEN (published.status = 'ok') <> has_summary THEN 'is ok without a summary, or has one and is not ok'
    WHEN published.status IN ('failed', 'skipped') AND published.error_type IS NULL THEN 'does not say why it has no summary'
    WHEN due.status IS NOT NULL AND (published.status, published.error_type) IS DISTINCT FROM (due.status, due.error_type)
        THEN 'has another status than the plan gave it'
    WHEN due.status IS NULL AND published.status = 'skipped' THEN 'is skipped, and the plan wants its summary'
    WHEN due.status IS NULL AND published.status <> 'pending' AND memo.place IS NULL THEN 'is not in the memo table'
    WHEN published.status = 'ok' AND (memo.status <> 'ok' OR memo.summary <> published.summary)
        THEN 'has another summary than the memo table'
    END AS problem
FROM due JOIN published USING (place) LEFT JOIN memo USING (place)
WHERE problem IS NOT NULL
ORDER BY place LIMIT 1

-- create_wanted: keys that plans refer to
CREATE TEMP TABLE wanted (hash_hi UBIGINT, hash_lo UBIGINT)

-- add_wanted: some more of them, each once
INSERT INTO wanted SELECT DISTINCT hash_hi, hash_lo FROM keys ANTI JOIN wanted USING (hash_hi, hash_lo)

-- row_documents: the document that each memo row belongs to, by the key that plans know; nested calls are their document's
CREATE TEMP TABLE document AS
SELECT filename AS file, file_row_number AS place,
    coalesce(document_hi, hash_hi) AS hash_hi, coalesce(document_lo, hash_lo) AS hash_lo
FROM read_parquet($segments, filename = true, file_row_number = true, hive_partitioning = false)

-- wanted_calls: the calls of wanted long documents, whichever document they were first made for
CREATE TEMP TABLE wanted_calls AS
SELECT DISTINCT unnest(calls_hi) AS hash_hi, unnest(calls_lo) AS hash_lo
FROM read_parquet($segments, hive_partitioning = false) SEMI JOIN wanted USING (hash_hi, hash_lo)
WHERE calls_hi IS NOT NULL

-- staying: rows that win and whose document is wanted, or the call itself
CREATE TEMP TABLE staying AS
SELECT file, place FROM document SEMI JOIN wanted USING (hash_hi, hash_lo) SEMI JOIN winner USING (file, place)
UNION
SELECT file, place FROM winner SEMI JOIN wanted_calls USING (hash_hi, hash_lo)

-- rows_by_segment: rows of each segment, and those of them that stay
SELECT document.file, count(*), count(staying.place)
FROM document LEFT JOIN staying USING (file, place)
GROUP BY document.file ORDER BY document.file

-- any_stays: whether one of some segments keeps a row
SELECT count(*) > 0 FROM staying WHERE list_contains($segments, file)

-- staying_places: where the rows that stay lie in a file
SELECT place FROM staying WHERE file = $file ORDER BY place
