-- The handlers that have decided events and that no living process runs. For each handler: how many
-- events are held, and how many of these events are not dead. Counting stops at 10,000 dead events of a
-- handler, at 10,000 waiting ones, and at 10,000 others.
-- inbox/internal/ledger/sql/unknown.sql is a similar statement for a process that starts.
--
-- Locks   none.
-- Index   inbox's primary key, held_due (handler, next_at, pos), held_waiting (handler, held_at) and
--         held_dead_handler (handler, dead_at, id), once for each handler.
-- Called  by checkUnknown.
WITH RECURSIVE deciding AS (
    (SELECT handler FROM postroom.inbox ORDER BY handler LIMIT 1)
    UNION ALL
    SELECT (SELECT inbox.handler FROM postroom.inbox WHERE inbox.handler > deciding.handler ORDER BY inbox.handler LIMIT 1)
    FROM deciding
    WHERE deciding.handler IS NOT NULL
)
SELECT d.handler::text, h.owed + h.dead AS held, h.owed
FROM deciding d
CROSS JOIN LATERAL (
    SELECT (SELECT count(*) FROM (SELECT FROM postroom.held WHERE held.handler = d.handler AND next_at IS NOT NULL LIMIT 10000) due)
           + (SELECT count(*) FROM (SELECT FROM postroom.held WHERE held.handler = d.handler AND coalesce(next_at, dead_at) IS NULL LIMIT 10000) waiting) AS owed,
           (SELECT count(*) FROM (SELECT FROM postroom.held WHERE held.handler = d.handler AND dead_at IS NOT NULL LIMIT 10000) dead) AS dead
) h
WHERE d.handler IS NOT NULL
  AND NOT EXISTS (SELECT FROM postroom.node WHERE d.handler = ANY (handlers) AND seen_at > now() - interval '1 minute')
ORDER BY d.handler;
