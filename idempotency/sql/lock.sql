-- Whether this transaction got the lock $1 of the operation, so that no other runs it, and
-- when the transaction began, as began.sql returns it.
--
-- Locks   the operation, until the transaction ends; does not wait.
-- Index   none.
-- Called  by store.open, with the BEGIN before it and present.sql after it, in one round trip.
SELECT pg_try_advisory_xact_lock($1::bigint), now();
