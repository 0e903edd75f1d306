-- The rows of the given ranges: from each of $1 through the one beside it in $2. What is
-- too large for an event is not read, as in pass.sql.
--
-- Locks   none.
-- Index   outbox_pkey (seq), once for each range.
-- Order   by seq.
-- Called  by Term.Read.
SELECT 1 AS part, o.seq, NULL::text AS note, o.event_id, o.source, o.type, o.subject, o.key, o.content_type,
       o.correlation_id, o.causation_id, o.occurred_at, o.trace_parent, o.trace_state,
       CASE WHEN pg_column_size(o.headers) <= 65536 THEN o.headers WHEN o.headers IS NOT NULL THEN '0' END AS headers,
       CASE WHEN octet_length(o.data) <= 983040 THEN o.data END AS data,
       greatest(o.created_at, o.not_before) AS logged_at, coalesce(o.not_before > clock_timestamp(), false) AS scheduled
FROM unnest($1::bigint[], $2::bigint[]) AS r (lo, hi)
-- One look at the index for each range: joined, the planner may compare the whole
-- log with all ranges.
CROSS JOIN LATERAL (SELECT * FROM postroom.outbox WHERE seq >= r.lo AND seq <= r.hi OFFSET 0) o
ORDER BY o.seq;
