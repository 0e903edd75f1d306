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
SELECT 1 AS part, seq, CASE WHEN octet_length(data) > 983040 THEN pg_column_size(data)::text END AS note,
       CASE WHEN octet_length(event_id) <= 512 THEN event_id ELSE left(event_id, 513) END AS event_id,
       CASE WHEN octet_length(source) <= 512 THEN source ELSE left(source, 513) END AS source,
       CASE WHEN octet_length(type) <= 512 THEN type ELSE left(type, 513) END AS type,
       CASE WHEN octet_length(subject) <= 512 THEN subject ELSE left(subject, 513) END AS subject,
       CASE WHEN octet_length(key) <= 512 THEN key ELSE left(key, 513) END AS key,
       CASE WHEN octet_length(content_type) <= 512 THEN content_type ELSE left(content_type, 513) END AS content_type,
       CASE WHEN octet_length(correlation_id) <= 512 THEN correlation_id ELSE left(correlation_id, 513) END AS correlation_id,
       CASE WHEN octet_length(causation_id) <= 512 THEN causation_id ELSE left(causation_id, 513) END AS causation_id,
       occurred_at,
       CASE WHEN octet_length(trace_parent) <= 512 THEN trace_parent ELSE left(trace_parent, 513) END AS trace_parent,
       CASE WHEN octet_length(trace_state) <= 512 THEN trace_state ELSE left(trace_state, 513) END AS trace_state,
       headers,
       CASE WHEN octet_length(data) <= 983040 THEN data END AS data,
       greatest(created_at, not_before) AS logged_at, coalesce(not_before > created_at, false) AS scheduled, size
FROM (SELECT *, sum(size) OVER (ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
      FROM (SELECT *, (CASE WHEN octet_length(data) <= 983040 THEN octet_length(data) ELSE 0 END
                       + coalesce(postroom.header_bytes(headers), 0))::bigint AS size FROM owed) owed) owed
--guard:owed-events-are-bounded-by-their-bytes = @1 >= 0
WHERE coalesce(before, 0) < 4194304
ORDER BY seq;
