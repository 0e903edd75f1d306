-- The inbox rows of an event. The statement looks up the dedupe keys $1 for every handler. It also
-- looks up the dedupe keys $3, each only for its handler in $2. These handlers have their own
-- dedupe keys for the event.
--
-- "OFFSET 0" makes the planner look up each key; a join could read all rows of a handler.
--
-- Locks   none.
-- Index   inbox's primary key, once for each handler, and once for each of its keys.
-- Order   by time.
-- Called  by Inspector.Event.
WITH RECURSIVE deciding AS (
    (SELECT handler::text FROM postroom.inbox ORDER BY inbox.handler, dedupe_key LIMIT 1)
    UNION ALL
    SELECT (SELECT inbox.handler::text FROM postroom.inbox WHERE inbox.handler > deciding.handler ORDER BY inbox.handler, dedupe_key LIMIT 1)
    FROM deciding
    WHERE deciding.handler IS NOT NULL
), asked AS (
    SELECT d.handler, k.dedupe_key FROM deciding d CROSS JOIN pg_catalog.unnest($1::text[]) AS k (dedupe_key) WHERE d.handler IS NOT NULL
    UNION
    SELECT handler, dedupe_key FROM unnest($2::text[], $3::text[]) AS k (handler, dedupe_key)
)
SELECT i.handler::text, i.dedupe_key::text, i.at, CASE WHEN i.discarded THEN 'discarded' ELSE '' END, coalesce(i.failures, '[]'), postroom.clipped(coalesce(i.result, ''), 1000)
FROM asked a
CROSS JOIN LATERAL (SELECT * FROM postroom.inbox WHERE inbox.handler = a.handler AND inbox.dedupe_key = a.dedupe_key OFFSET 0) i
ORDER BY i.at, i.handler;
