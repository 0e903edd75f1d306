-- The events with the ids $2 of source $1, or of all sources if $1 is empty. Events of the log come
-- first, then held events, then discarded events.
--
-- "OFFSET 0" makes the planner look up the event for each source. A join would search all events
-- for the ids, because no index of the log begins with the id.
--
-- Locks   none.
-- Index   outbox_event (source, event_id), once for each source, and for each source and id; held_event (event_id), archive_event (event_id).
-- Called  by Grow.
WITH RECURSIVE source (source, n) AS (
    (SELECT outbox.source::text, 1 FROM postroom.outbox WHERE $1::text = '' ORDER BY outbox.source, outbox.event_id LIMIT 1)
    UNION ALL
    SELECT (SELECT o.source::text FROM postroom.outbox o WHERE o.source > source.source ORDER BY o.source, o.event_id LIMIT 1), n + 1
    FROM source
    WHERE source.source IS NOT NULL AND n < 1000
), wanted AS (
    SELECT source FROM source WHERE source.source IS NOT NULL
    UNION ALL
    SELECT $1 WHERE $1::text <> ''
)
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
FROM wanted w
CROSS JOIN pg_catalog.unnest($2::text[]) AS wish (id)
CROSS JOIN postroom.relay r
CROSS JOIN LATERAL (SELECT * FROM postroom.outbox WHERE outbox.source = w.source AND outbox.event_id = wish.id OFFSET 0) o
UNION ALL
SELECT h.id, 0::bigint,
       postroom.clipped(h.source, 1024), postroom.clipped(h.event_id, 1024), postroom.clipped(h.type, 1024),
       coalesce(postroom.clipped(h.key, 1024), ''), coalesce(postroom.clipped(h.correlation_id, 1024), ''),
       coalesce(postroom.clipped(h.causation_id, 1024), ''),
       coalesce(postroom.clipped(lower(split_part(h.trace_parent, '-', 2)), 1024), ''), postroom.clamped(h.logged_at), ''
FROM pg_catalog.unnest($2::text[]) AS wish (id)
CROSS JOIN LATERAL (SELECT * FROM postroom.held WHERE held.event_id = wish.id AND ($1 = '' OR held.source = $1) LIMIT 100) h
UNION ALL
SELECT h.id, 0::bigint,
       postroom.clipped(h.source, 1024), postroom.clipped(h.event_id, 1024), postroom.clipped(h.type, 1024),
       coalesce(postroom.clipped(h.key, 1024), ''), coalesce(postroom.clipped(h.correlation_id, 1024), ''),
       coalesce(postroom.clipped(h.causation_id, 1024), ''),
       coalesce(postroom.clipped(lower(split_part(h.trace_parent, '-', 2)), 1024), ''), postroom.clamped(h.logged_at), ''
FROM pg_catalog.unnest($2::text[]) AS wish (id)
CROSS JOIN LATERAL (SELECT * FROM postroom.archive WHERE archive.event_id = wish.id AND ($1 = '' OR archive.source = $1) LIMIT 100) h;
