-- The event with id $2 of source $1 in the log. If $1 is empty: the events of all sources with this
-- id. The state of each event follows from the row of relay, and from the tables held and archive:
--   held         it is held: it will be published later, or is dead
--   discarded    it was discarded or cancelled
--   pending      a relay has read it, and has not recorded its acknowledgement
--   unpublished  no relay has read it yet
--   published    the broker has it
--
-- "OFFSET 0" makes the planner look up the event for each source. A join would read all of held. It
-- would also search all events for the id, because no index of the log begins with the id.
--
-- Locks   none.
-- Index   outbox_event (source, event_id), twice for each source; held_outgoing (pos), archive_outgoing (pos), refused_pkey (seq).
-- Called  by Inspector.Event.
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
SELECT o.seq, o.source::text, o.event_id::text, o.type::text, o.subject::text, coalesce(o.key, ''), coalesce(o.correlation_id, ''), coalesce(o.causation_id, ''),
       octet_length(o.data) AS bytes, o.created_at, o.not_before, greatest(o.created_at, o.not_before) AS logged_at, o.occurred_at,
       CASE WHEN EXISTS (SELECT FROM postroom.held WHERE handler = 'outbox' AND pos = o.seq OFFSET 0) THEN 'held'
            WHEN EXISTS (SELECT FROM postroom.archive WHERE handler = 'outbox' AND pos = o.seq OFFSET 0) THEN 'discarded'
            WHEN o.seq OPERATOR(pg_catalog.<@) r.pending THEN 'pending'
            WHEN o.seq > r.high OR o.seq > r.floor AND NOT pg_visible_in_snapshot(o.xid, r.snap) THEN 'unpublished'
            ELSE 'published' END AS state,
       coalesce((SELECT failures FROM postroom.refused WHERE refused.seq = o.seq), '[]') AS failures
FROM wanted w
CROSS JOIN postroom.relay r
CROSS JOIN LATERAL (SELECT * FROM postroom.outbox WHERE outbox.source = w.source AND outbox.event_id = $2::text OFFSET 0) o
ORDER BY o.seq;
