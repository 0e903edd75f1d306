-- Return the keys of handler $1 after key $2 that have dead events, at most $3 of them.
--
-- Locks   none.
-- Index   held_chain_pos (handler, chain, pos), all entries of the handler after $2 until enough are found.
-- Called  by Records.SkipDead, after plan.sql.
SELECT DISTINCT chain FROM postroom.held
WHERE handler = $1 AND chain > $2 AND dead_at IS NOT NULL
ORDER BY chain
LIMIT $3;
