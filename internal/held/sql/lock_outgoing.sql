-- Until the transaction ends, keep the relay from publishing the outgoing events among $1. Return
-- the events that could not be locked, because the relay or a producer has locked them.
--
-- The statement waits for no transaction, because a producer may keep a transaction open for long.
--
-- Locks   the outgoing events, by the advisory locks that the relay tries in
--         internal/pglog/sql/unlocked.sql.
-- Index   held_pkey (id).
-- Called  by action.lock, before all other locks.
SELECT id FROM postroom.held
WHERE id = ANY ($1::bigint[]) AND CASE WHEN handler = 'outbox' THEN NOT pg_try_advisory_xact_lock(postroom.event_lock(pos)) ELSE false END;
