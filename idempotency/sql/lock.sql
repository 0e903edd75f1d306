-- Whether this transaction is the only one that runs the operation with lock $1, and
-- when it began, as began.sql has it.
--
-- Locks   the operation, until the transaction ends; waits for nobody.
-- Index   none.
-- Called  by store.open, with the BEGIN before it and present.sql after it, in one round trip.
SELECT pg_try_advisory_xact_lock($1::bigint), now();
