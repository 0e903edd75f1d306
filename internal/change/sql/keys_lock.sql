-- Lock the keys of the events $1 until the transaction ends: those that hold up others,
-- and those that they are given here.
--
-- Locks   the keys, in their order.
-- Index   held_pkey (id).
-- Called  by Tables.Lock, before what changes rows that have a key.
SELECT count(pg_advisory_xact_lock(postroom.key_lock(handler, key)))
FROM (SELECT DISTINCT handler, key FROM postroom.held
      WHERE id = ANY ($1::bigint[]) AND key IS NOT NULL AND handler <> 'outbox'
      ORDER BY handler, key) k;
