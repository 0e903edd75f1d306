-- The events of the log that match, the newest first.
--
-- $1 only seqs below this seq   $2 only seqs from this seq on   $3 key   $4 type   $5 source
-- $6 correlation id   $7 causation id   $8 trace id   $9 any of: event id, key, correlation
-- id, causation id, trace id   $10 written at this time or later   $11 written before this time
-- $12 the maximum number of rows to read   $13 the maximum number of events to return. A parameter
-- that is NULL is no condition.
--
-- The column looked says how many rows the statement read. The columns reached and reached_at are
-- the seq and the time of the last of these rows. If no event matches, the result is one row with
-- seq 0.
--
-- Locks   none.
-- Index   outbox_pkey (seq), from its end; held_outgoing (pos), archive_outgoing (pos).
-- Order   by seq, descending, so that the statement stops at its limits.
-- Called  by Reader.Page.
WITH looked AS MATERIALIZED (
    SELECT seq, created_at,
           ($3::text IS NULL OR key = $3) AND ($4::text IS NULL OR type = $4) AND ($5::text IS NULL OR source = $5)
           AND ($6::text IS NULL OR correlation_id = $6) AND ($7::text IS NULL OR causation_id = $7)
           AND ($8::text IS NULL OR lower(split_part(trace_parent, '-', 2)) = $8)
           AND ($9::text IS NULL OR event_id = $9 OR key = $9 OR correlation_id = $9 OR causation_id = $9
                OR lower(split_part(trace_parent, '-', 2)) = lower($9))
           AND ($10::timestamptz IS NULL OR created_at >= $10) AND ($11::timestamptz IS NULL OR created_at < $11) AS wanted
    FROM postroom.outbox
    WHERE seq < $1::bigint AND seq >= $2::bigint
    ORDER BY seq DESC
    LIMIT $12::bigint
), edge AS (
    SELECT count(*) AS looked, coalesce(min(seq), 0) AS reached, (SELECT created_at FROM looked ORDER BY seq LIMIT 1) AS reached_at
    FROM looked
), found AS (
    SELECT seq FROM looked WHERE wanted ORDER BY seq DESC LIMIT $13::bigint
)
SELECT edge.looked, edge.reached, edge.reached_at, coalesce(o.seq, 0) AS at, coalesce(o.seq, 0) AS seq,
       coalesce(postroom.clipped(o.source, 1024), '') AS source, coalesce(postroom.clipped(o.event_id, 1024), '') AS event_id,
       coalesce(postroom.clipped(o.type, 1024), '') AS type, coalesce(postroom.clipped(o.key, 1024), '') AS key,
       coalesce(postroom.clipped(o.correlation_id, 1024), '') AS correlation_id, coalesce(postroom.clipped(o.causation_id, 1024), '') AS causation_id,
       coalesce(postroom.clipped(lower(split_part(o.trace_parent, '-', 2)), 1024), '') AS trace_id, postroom.clamped(o.created_at) AS logged_at,
       CASE WHEN EXISTS (SELECT FROM postroom.held WHERE handler = 'outbox' AND pos = o.seq OFFSET 0) THEN 'held'
            WHEN EXISTS (SELECT FROM postroom.archive WHERE handler = 'outbox' AND pos = o.seq OFFSET 0) THEN 'discarded'
            WHEN o.seq OPERATOR(pg_catalog.<@) r.pending THEN 'pending'
            WHEN o.seq > r.high OR o.seq > r.floor AND NOT pg_visible_in_snapshot(o.xid, r.snap) THEN 'unpublished'
            ELSE 'published' END AS state
FROM edge
CROSS JOIN postroom.relay r
LEFT JOIN found ON true
LEFT JOIN LATERAL (SELECT * FROM postroom.outbox WHERE outbox.seq = found.seq OFFSET 0) o ON true
ORDER BY o.seq DESC;
