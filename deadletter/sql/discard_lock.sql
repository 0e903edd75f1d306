-- The ids of the events $1 that are still dead. Because of the locks, they stay dead until the
-- transaction ends.
--
-- Locks   the held rows, in the order of id. The caller has already locked the keys and the row of relay.
-- Index   held_pkey (id).
-- Called  by Store.Discard, before discard.sql.

--guard:only-what-is-dead-is-discarded 2 true
SELECT id FROM postroom.held WHERE id = ANY ($1::bigint[]) AND dead_at IS NOT NULL
ORDER BY id
--guard:a-discard-locks-what-it-moves remove
FOR UPDATE;
