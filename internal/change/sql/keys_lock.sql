-- Lock the keys of the events $1 until the transaction ends: the keys whose later events wait
-- for them, and the keys that the events will get here.
--
-- Locks   the keys, in their order.
-- Index   held_pkey (id).
-- Called  by Tables.Lock, before statements that change rows with a key.
SELECT count(pg_advisory_xact_lock(postroom.key_lock(handler, key)))
FROM (SELECT DISTINCT handler, key FROM postroom.held
      WHERE id = ANY ($1::bigint[]) AND key IS NOT NULL AND handler <> 'outbox'
      ORDER BY handler, key) k;
