-- Lock those of the events $1 that are dead, until the transaction ends. A producer that has cancelled
-- such an event may keep its transaction open for long. So this statement waits for it before
-- relay_lock.sql makes the relay wait. No relay waits for a dead event.
--
-- Locks   the held rows, in the order of id.
-- Index   held_pkey (id).
-- Called  by Tables.Lock.
SELECT pg_catalog.count(*) FROM (
    SELECT FROM postroom.held WHERE id = ANY ($1::bigint[]) AND dead_at IS NOT NULL
    ORDER BY id
    FOR UPDATE
) locked;
