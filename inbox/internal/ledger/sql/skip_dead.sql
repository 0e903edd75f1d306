-- The dead events of the keys $2 of handler $1 leave their keys: later events no longer wait for them.
--
-- Locks   the held rows; the keys are locked before.
-- Index   held_chain_pos (handler, chain, pos), all entries of the keys.
-- Called  by Records.SkipDead, after lock_key.sql and before wake.sql, in one transaction.
UPDATE postroom.held SET chain = NULL WHERE handler = $1 AND chain = ANY ($2::text[]) AND dead_at IS NOT NULL;
