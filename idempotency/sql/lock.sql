-- Whether this transaction got the lock $1 of the operation, so that no other transaction runs
-- the operation, and when this transaction began, as in began.sql.
--
-- Locks   the operation, until the transaction ends; does not wait.
-- Index   none.
-- Called  by store.open, with the BEGIN before it and present.sql after it, in one round trip.
SELECT pg_try_advisory_xact_lock($1::bigint), now();
