-- The names of the handlers that have held events, from the name $1 on. They include outbox if an
-- outgoing event is held.
--
-- Locks   none.
-- Index   held_owed (handler, dedupe_key), once for each handler; held_outgoing (pos), one entry.
-- Order   by handler.
-- Called  by Reader.Page.
WITH RECURSIVE holder AS (
    (SELECT handler::text FROM postroom.held WHERE dedupe_key IS NOT NULL AND held.handler >= $1::text ORDER BY held.handler, dedupe_key LIMIT 1)
    UNION ALL
    SELECT (SELECT held.handler::text FROM postroom.held
            WHERE dedupe_key IS NOT NULL AND held.handler > holder.handler ORDER BY held.handler, dedupe_key LIMIT 1)
    FROM holder
    WHERE holder.handler IS NOT NULL
)
SELECT handler
FROM (
    SELECT handler FROM holder WHERE handler IS NOT NULL
    UNION ALL
    SELECT 'outbox' WHERE 'outbox' >= $1::text COLLATE "C" AND EXISTS (SELECT FROM postroom.held WHERE handler = 'outbox' OFFSET 0)
) holders
ORDER BY handler COLLATE "C";
