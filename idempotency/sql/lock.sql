-- Try to take the lock $1 of the operation. While this transaction has the lock, no other
-- transaction runs the operation. Return whether this transaction got the lock, and when it began,
-- as began.sql does.
--
-- Locks   the operation, until the transaction ends; does not wait.
-- Index   none.
-- Called  by store.open, after BEGIN and before present.sql, in one round trip.
SELECT pg_try_advisory_xact_lock($1::bigint), now();
