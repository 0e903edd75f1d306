-- The events of the log with correlation id $2, the oldest first.
--
-- $1 only seqs from this seq on   $3 the maximum number of rows to read   $4 the maximum number of
-- events to return. The columns looked, reached and reached_at are as in page_log.sql. If no event
-- matches, the result is one row with seq 0.
--
-- Locks   none.
-- Index   outbox_pkey (seq); held_outgoing (pos), archive_outgoing (pos).
-- Order   by seq, so that the statement stops at its limits.
-- Called  by Grow.
WITH looked AS MATERIALIZED (
    SELECT seq, created_at, correlation_id = $2::text AS wanted
    FROM postroom.outbox
    WHERE seq >= $1::bigint
    ORDER BY seq
    LIMIT $3::bigint
), edge AS (
    SELECT count(*) AS looked, coalesce(max(seq), 0) AS reached, (SELECT created_at FROM looked ORDER BY seq DESC LIMIT 1) AS reached_at
    FROM looked
), found AS (
    SELECT seq FROM looked WHERE wanted ORDER BY seq LIMIT $4::bigint
)
SELECT edge.looked, edge.reached, edge.reached_at, coalesce(e.at, 0), coalesce(e.seq, 0), coalesce(e.source, ''), coalesce(e.event_id, ''),
       coalesce(e.type, ''), coalesce(e.key, ''), coalesce(e.correlation_id, ''), coalesce(e.causation_id, ''), coalesce(e.trace_id, ''), e.logged_at,
       coalesce(e.state, '')
FROM edge
LEFT JOIN found ON true
LEFT JOIN LATERAL (
    SELECT o.seq AS at, o.seq AS seq,
           postroom.clipped(o.source, 1024) AS source, postroom.clipped(o.event_id, 1024) AS event_id, postroom.clipped(o.type, 1024) AS type,
           coalesce(postroom.clipped(o.key, 1024), '') AS key, coalesce(postroom.clipped(o.correlation_id, 1024), '') AS correlation_id,
           coalesce(postroom.clipped(o.causation_id, 1024), '') AS causation_id,
           coalesce(postroom.clipped(lower(split_part(o.trace_parent, '-', 2)), 1024), '') AS trace_id, postroom.clamped(o.created_at) AS logged_at,
           CASE WHEN EXISTS (SELECT FROM postroom.held WHERE handler = 'outbox' AND pos = o.seq OFFSET 0) THEN 'held'
                WHEN EXISTS (SELECT FROM postroom.archive WHERE handler = 'outbox' AND pos = o.seq OFFSET 0) THEN 'discarded'
                WHEN o.seq OPERATOR(pg_catalog.<@) r.pending THEN 'pending'
                WHEN o.seq > r.high OR o.seq > r.floor AND NOT pg_visible_in_snapshot(o.xid, r.snap) THEN 'unpublished'
                ELSE 'published' END AS state
    FROM postroom.outbox o
    CROSS JOIN postroom.relay r
    WHERE o.seq = found.seq
    OFFSET 0
) e ON true
ORDER BY e.seq;
