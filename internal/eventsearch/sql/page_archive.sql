-- The discarded events that match and that are neither in the log nor in held: events of other
-- services, and events that retention has removed from the log. The events that were held last come
-- first. An event that was discarded for several handlers has one row.
--
-- $1 only ids below this id   $2 not used   $3 to $13 as in page_log.sql. The columns are those of
-- page_log.sql, but "at" is the id of the row.
--
-- Locks   none.
-- Index   archive_pkey (id), from its end; outbox_event (source, event_id), held_event (event_id), archive_event (event_id).
-- Order   by id, descending, so that the statement stops at its limits.
-- Called  by Reader.Page.
WITH looked AS MATERIALIZED (
    SELECT id, logged_at,
           ($3::text IS NULL OR key = $3) AND ($4::text IS NULL OR type = $4) AND ($5::text IS NULL OR source = $5)
           AND ($6::text IS NULL OR correlation_id = $6) AND ($7::text IS NULL OR causation_id = $7)
           AND ($8::text IS NULL OR lower(split_part(trace_parent, '-', 2)) = $8)
           AND ($9::text IS NULL OR event_id = $9 OR key = $9 OR correlation_id = $9 OR causation_id = $9
                OR lower(split_part(trace_parent, '-', 2)) = lower($9))
           AND ($10::timestamptz IS NULL OR logged_at >= $10) AND ($11::timestamptz IS NULL OR logged_at < $11) AS wanted
    FROM postroom.archive
    WHERE id < $1::bigint AND $2::bigint IS NOT NULL
    ORDER BY id DESC
    LIMIT $12::bigint
), edge AS (
    SELECT count(*) AS looked, coalesce(min(id), 0) AS reached, (SELECT logged_at FROM looked ORDER BY id LIMIT 1) AS reached_at
    FROM looked
), found AS (
    SELECT h.*
    FROM looked l
    CROSS JOIN LATERAL (
        SELECT * FROM postroom.archive h
        WHERE h.id = l.id
             AND NOT EXISTS (SELECT FROM postroom.outbox o WHERE o.source = h.source COLLATE "C" AND o.event_id = h.event_id)
             AND NOT EXISTS (SELECT FROM postroom.held n WHERE n.event_id = h.event_id AND n.source = h.source)
             AND NOT EXISTS (SELECT FROM postroom.archive n WHERE n.event_id = h.event_id AND n.source = h.source AND n.id > h.id)
        OFFSET 0
    ) h
    WHERE l.wanted
    ORDER BY l.id DESC
    LIMIT $13::bigint
)
SELECT edge.looked, edge.reached, postroom.clamped(edge.reached_at) AS reached_at, coalesce(o.id, 0) AS at, 0::bigint AS seq,
       coalesce(postroom.clipped(o.source, 1024), '') AS source, coalesce(postroom.clipped(o.event_id, 1024), '') AS event_id,
       coalesce(postroom.clipped(o.type, 1024), '') AS type, coalesce(postroom.clipped(o.key, 1024), '') AS key,
       coalesce(postroom.clipped(o.correlation_id, 1024), '') AS correlation_id, coalesce(postroom.clipped(o.causation_id, 1024), '') AS causation_id,
       coalesce(postroom.clipped(lower(split_part(o.trace_parent, '-', 2)), 1024), '') AS trace_id, postroom.clamped(o.logged_at) AS logged_at,
       '' AS state
FROM edge
LEFT JOIN found o ON true
ORDER BY o.id DESC;
