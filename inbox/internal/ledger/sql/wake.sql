-- Make the first held event of each of the keys $2 of handler $1 due, if it still waits for an event
-- that has left its key.
--
-- Locks   the held rows; the keys are locked before.
-- Index   held_chain_pos (handler, chain, pos), one entry for each key; held_pkey (id).
-- Called  by Records.SkipDead, after lock_key.sql and skip_dead.sql, in one transaction.
UPDATE postroom.held
SET next_at = now()
FROM (SELECT (SELECT h.id FROM postroom.held h WHERE h.handler = $1 AND h.chain = k.chain ORDER BY h.pos LIMIT 1) AS id
      FROM pg_catalog.unnest($2::text[]) AS k (chain)) AS first
WHERE held.id = first.id AND held.next_at IS NULL AND held.dead_at IS NULL;
