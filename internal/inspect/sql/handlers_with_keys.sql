-- The handlers that have held events with keys.
--
-- Locks   none.
-- Index   held_chain_pos (handler, chain, pos), once for each handler.
-- Order   by handler.
-- Called  by Inspector.Keys, if its filter has a key and no handler.
WITH RECURSIVE holder AS (
    (SELECT handler::text FROM postroom.held WHERE chain IS NOT NULL ORDER BY held.handler, chain LIMIT 1)
    UNION ALL
    SELECT (SELECT held.handler::text FROM postroom.held WHERE chain IS NOT NULL AND held.handler > holder.handler
            ORDER BY held.handler, chain LIMIT 1)
    FROM holder
    WHERE holder.handler IS NOT NULL
)
SELECT handler FROM holder WHERE handler IS NOT NULL;
