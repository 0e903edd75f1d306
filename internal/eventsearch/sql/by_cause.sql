-- At most $2 events of the log that were caused by the events with the ids $1.
--
-- Locks   none.
-- Index   outbox_causation (causation_id), once for each cause.
-- Called  by Grow.
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
FROM (
    SELECT caused.*
    FROM pg_catalog.unnest($1::text[]) AS cause (id)
    CROSS JOIN LATERAL (SELECT * FROM postroom.outbox WHERE outbox.causation_id = cause.id LIMIT $2::bigint) caused
    LIMIT $2::bigint
) o
CROSS JOIN postroom.relay r
ORDER BY o.seq;
