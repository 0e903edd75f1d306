-- Lock the keys of the held events $1 until the transaction ends, because later events of these
-- keys may wait for the events $1. The statement skips the keys of outgoing events: for these
-- events, relay_lock.sql locks the row of relay.
--
-- Locks   the keys, in the order of handler and key.
-- Index   held_pkey (id).
-- Called  by Tables.Lock, before statements that change rows with a key.
SELECT pg_catalog.count(pg_advisory_xact_lock(postroom.key_lock(handler, chain)))
FROM (SELECT DISTINCT handler, chain FROM postroom.held
      WHERE id = ANY ($1::bigint[]) AND chain IS NOT NULL AND handler <> 'outbox'
      ORDER BY handler, chain) k;
