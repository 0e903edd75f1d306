-- Return the keys of handler $1 that have held events, at most $2 of them.
--
-- Locks   none.
-- Index   held_key_pos (handler, key, pos), once for each key.
-- Called  by Records.HeldKeys, after plan.sql.
WITH RECURSIVE blocked AS (
    (SELECT key FROM postroom.held WHERE handler = $1 AND key IS NOT NULL ORDER BY key LIMIT 1)
    UNION ALL
    SELECT (SELECT held.key FROM postroom.held WHERE held.handler = $1 AND held.key > blocked.key ORDER BY held.key LIMIT 1)
    FROM blocked
    WHERE blocked.key IS NOT NULL
)
SELECT key FROM blocked WHERE key IS NOT NULL LIMIT $2;
