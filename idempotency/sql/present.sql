-- Whether there is a row of key $3 of principal $2 in scope $1. Mostly there is none, and this
-- statement costs half of look.sql. It is a separate statement after lock.sql, so it sees all
-- changes that the last holder of the lock committed.
--
-- Locks   none.
-- Index   the primary key.
-- Called  by store.open, with the BEGIN and lock.sql before it, in one round trip.
SELECT FROM postroom.idempotency
WHERE scope = $1 AND principal = $2 AND key = $3;
