-- Return the handlers that have rows in inbox, but that no living process runs. The handlers $1 are
-- those of this process, and are left out. Return for each handler how many events are held, up to
-- 100,000.
--
-- Locks   none.
-- Index   inbox's primary key and held_owed, once for each handler.
-- Called  by Upkeep.Unknown.
WITH RECURSIVE deciding AS (
    (SELECT handler FROM postroom.inbox ORDER BY handler LIMIT 1)
    UNION ALL
    SELECT (SELECT inbox.handler FROM postroom.inbox WHERE inbox.handler > deciding.handler ORDER BY inbox.handler LIMIT 1)
    FROM deciding
    WHERE deciding.handler IS NOT NULL
)
SELECT d.handler,
       (SELECT count(*) FROM (SELECT FROM postroom.held
                              WHERE held.handler = d.handler AND dedupe_key IS NOT NULL LIMIT 100000) h) AS held
FROM deciding d
WHERE d.handler IS NOT NULL AND d.handler <> ALL ($1::text[])
  AND NOT EXISTS (SELECT FROM postroom.node WHERE d.handler = ANY (handlers) AND seen_at > now() - interval '1 minute')
ORDER BY d.handler;
