-- The keys of held events after $1, each once: the first $2.
--
-- Locks   none.
-- Index   held_key_pos (handler, key, pos), once for each key.
-- Order   by key.
-- Called  by Term.HeldKeys.
WITH RECURSIVE keys AS (
    (SELECT key FROM postroom.held WHERE handler = 'outbox' AND key > $1 ORDER BY key LIMIT 1)
    UNION ALL
    SELECT (SELECT held.key FROM postroom.held WHERE handler = 'outbox' AND held.key > keys.key ORDER BY held.key LIMIT 1)
    FROM keys
    WHERE keys.key IS NOT NULL
)
SELECT key FROM keys WHERE key IS NOT NULL LIMIT $2;
