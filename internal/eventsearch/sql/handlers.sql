-- The states, at all handlers, of the events with the sources $1, the ids $2 and the keys $3 in the
-- table inbox. Each row has the number of the event, the handler and the state. An event that is
-- held for a handler also has its inbox row. So the result also has a row for this handler with state
-- 'done'. The inbox row of a discarded event says so, even after a purge. If a handler sets its own dedupe keys, the statement cannot
-- find its inbox rows. Then the result has this handler only if the event is held for it, or was
-- discarded.
--
-- "OFFSET 0" makes the planner look up each key; a join could read all rows of a handler.
--
-- Locks   none.
-- Index   held_event (event_id), archive_event (event_id); inbox's primary key, once for each handler, and once for each handler and event.
-- Order   held before discarded before done.
-- Called  by Reader.Handlers.
WITH RECURSIVE deciding (handler, n) AS (
    (SELECT handler::text, 1 FROM postroom.inbox ORDER BY inbox.handler, dedupe_key LIMIT 1)
    UNION ALL
    SELECT (SELECT inbox.handler::text FROM postroom.inbox WHERE inbox.handler > deciding.handler ORDER BY inbox.handler, dedupe_key LIMIT 1), n + 1
    FROM deciding
    WHERE deciding.handler IS NOT NULL AND n < 200
), event AS (
    SELECT *
    FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::text[])) WITH ORDINALITY AS event (source, event_id, dedupe_key, n)
)
SELECT e.n - 1 AS event, h.handler, h.state, h.place
FROM event e
CROSS JOIN LATERAL (
    (SELECT handler::text,
            CASE WHEN dead_at IS NOT NULL THEN 'dead'
                 WHEN next_at IS NULL THEN 'waiting'
                 WHEN claimed_by IS NOT NULL THEN CASE WHEN next_at > now() OR handler = 'outbox' THEN 'running' ELSE 'abandoned' END
                 WHEN next_at <= now() THEN 'due'
                 WHEN class IS NULL AND chain IS NULL THEN 'scheduled'
                 ELSE 'retrying' END AS state, 1 AS place
     FROM postroom.held WHERE held.event_id = e.event_id AND held.source = e.source LIMIT 100)
    UNION ALL
    (SELECT handler::text, 'discarded', 2 FROM postroom.archive WHERE archive.event_id = e.event_id AND archive.source = e.source LIMIT 100)
    UNION ALL
    --guard:what-was-discarded-took-no-effect 2.1 = false
    SELECT d.handler, CASE WHEN i.discarded THEN 'discarded' ELSE 'done' END, 3
    FROM deciding d
    CROSS JOIN LATERAL (SELECT discarded FROM postroom.inbox WHERE inbox.handler = d.handler AND inbox.dedupe_key = e.dedupe_key OFFSET 0) i
    WHERE d.handler IS NOT NULL
) h
ORDER BY e.n, h.place, h.handler;
