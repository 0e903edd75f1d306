-- Return the keys of handler $1 that have held events, at most $2 of them.
--
-- Locks   none.
-- Index   held_chain_pos (handler, chain, pos), once for each key.
-- Called  by Records.HeldKeys, after plan.sql.
WITH RECURSIVE blocked AS (
    (SELECT chain FROM postroom.held WHERE handler = $1 AND chain IS NOT NULL ORDER BY chain LIMIT 1)
    UNION ALL
    SELECT (SELECT held.chain FROM postroom.held WHERE held.handler = $1 AND held.chain > blocked.chain ORDER BY held.chain LIMIT 1)
    FROM blocked
    WHERE blocked.chain IS NOT NULL
)
SELECT chain FROM blocked WHERE chain IS NOT NULL LIMIT $2;
