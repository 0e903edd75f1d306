-- The rows in some ranges of seqs. $1 has the first seq of each range, and $2 the last. As in
-- pass.sql, the statement leaves out values that are too large for an event, and ends the result
-- when the column size reaches 4 MiB.
--
-- Locks   none.
-- Index   outbox_pkey (seq), once for each range.
-- Order   by seq.
-- Called  by Term.Read and Term.ReadAgain.
WITH owed AS (
    SELECT o.*
    FROM unnest($1::bigint[], $2::bigint[]) AS r (lo, hi)
    -- OFFSET 0 makes the server search the index once for each range. With a simple join, the
    -- server may compare the complete log with all ranges.
    CROSS JOIN LATERAL (SELECT * FROM postroom.outbox WHERE seq >= r.lo AND seq <= r.hi OFFSET 0) o
)
SELECT 1 AS part, seq, CASE WHEN not_before > created_at AND not_before <= clock_timestamp() THEN 'due' END AS note, event_id, source, type, subject, key, content_type,
       correlation_id, causation_id, occurred_at, trace_parent, trace_state,
       CASE WHEN pg_column_size(headers) <= 65536 AND (pg_column_compression(headers) IS NULL OR octet_length(headers::text) <= 131072) THEN headers WHEN headers IS NOT NULL THEN '0' END AS headers,
       CASE WHEN octet_length(data) <= 983040 THEN data END AS data,
       greatest(created_at, not_before) AS logged_at, coalesce(not_before > clock_timestamp(), false) AS scheduled, size
FROM (SELECT *, sum(size) OVER (ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
      FROM (SELECT *, (CASE WHEN octet_length(data) <= 983040 THEN octet_length(data) ELSE 0 END
                       + coalesce(CASE WHEN pg_column_size(headers) > 65536 THEN 0 WHEN pg_column_compression(headers) IS NULL THEN pg_column_size(headers) WHEN octet_length(headers::text) <= 131072 THEN octet_length(headers::text) END, 0))::bigint AS size FROM owed) owed) owed
--guard:owed-events-are-bounded-by-their-bytes = @1 >= 0
WHERE coalesce(before, 0) < 4194304
ORDER BY seq;
