-- The keys of held events after $1, each once: the first $2.
--
-- Locks   none.
-- Index   held_chain_pos (handler, chain, pos), once for each key.
-- Order   by key.
-- Called  by Term.HeldKeys.
WITH RECURSIVE keys AS (
    (SELECT chain FROM postroom.held WHERE handler = 'outbox' AND chain > $1 ORDER BY chain LIMIT 1)
    UNION ALL
    SELECT (SELECT held.chain FROM postroom.held WHERE handler = 'outbox' AND held.chain > keys.chain ORDER BY held.chain LIMIT 1)
    FROM keys
    WHERE keys.chain IS NOT NULL
)
SELECT chain FROM keys WHERE chain IS NOT NULL LIMIT $2;
