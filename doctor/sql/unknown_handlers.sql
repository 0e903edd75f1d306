-- The handlers that have decided events and that no living process runs. For each handler: how many
-- events are held, counted up to 10,000, and how many of these events are not dead.
-- inbox/internal/ledger/sql/unknown.sql is a similar statement for a process that starts.
--
-- Locks   none.
-- Index   inbox's primary key and held_owed, once for each handler.
-- Called  by checkUnknown.
WITH RECURSIVE deciding AS (
    (SELECT handler FROM postroom.inbox ORDER BY handler LIMIT 1)
    UNION ALL
    SELECT (SELECT inbox.handler FROM postroom.inbox WHERE inbox.handler > deciding.handler ORDER BY inbox.handler LIMIT 1)
    FROM deciding
    WHERE deciding.handler IS NOT NULL
)
SELECT d.handler::text, h.held, h.owed
FROM deciding d
CROSS JOIN LATERAL (SELECT count(*) AS held, count(*) FILTER (WHERE dead_at IS NULL) AS owed
                    FROM (SELECT dead_at FROM postroom.held
                          WHERE held.handler = d.handler AND dedupe_key IS NOT NULL LIMIT 10000) rows) h
WHERE d.handler IS NOT NULL
  AND NOT EXISTS (SELECT FROM postroom.node WHERE d.handler = ANY (handlers) AND seen_at > now() - interval '1 minute')
ORDER BY d.handler;
