-- Return an empty row if key $3 of principal $2 in scope $1 has a row, or if it has a row with the
-- principal in its other form $4. Usually the key has no row,
-- and this statement costs half as much as look.sql. This is a separate statement after lock.sql,
-- so that in READ COMMITTED it sees all changes that the last holder of the lock committed.
--
-- Locks   none.
-- Index   the primary key.
-- Called  by store.open, after BEGIN and lock.sql, in one round trip.
SELECT FROM postroom.idempotency
WHERE scope = $1 AND principal IN ($2, $4) AND key = $3;
