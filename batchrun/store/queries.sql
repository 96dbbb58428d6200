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

-- located: for each row of the plan, where its memo row lies
CREATE TEMP TABLE located AS
SELECT part, ordinal, file, place FROM planned JOIN winner USING (hash_hi, hash_lo)

-- located_rows: the rows of a file that the output needs, with the plan's row group and the row's number
SELECT place, part, ordinal FROM located WHERE file = $file ORDER BY place

-- count_winners: documents by rank
SELECT rank, count(*) FROM winner WHERE NOT is_nested GROUP BY rank

-- nested_places: where the finished calls of long documents lie in a file
SELECT place FROM winner WHERE file = $file AND is_nested AND rank = 2 ORDER BY place

-- nested_rows: of the keys asked for, those finished
SELECT nested.* FROM nested SEMI JOIN asked USING (hash_hi, hash_lo)

-- no_winners: the empty memo table
CREATE OR REPLACE TEMP TABLE winner (
    hash_hi UBIGINT, hash_lo UBIGINT, rank TINYINT, error_type VARCHAR, attempts INTEGER,
    is_nested BOOLEAN, file VARCHAR, place BIGINT
)
