-- Try to take the lock $1 of an operation, and note the result in a setting of this transaction. The
-- next statement reads the setting. It claims nothing if this statement did not get the lock, even
-- if the lock is free by then: it sees only what was committed before it began, and the last holder
-- of the lock may have committed later.
--
-- Locks   the operation, until the transaction ends; does not wait.
-- Index   none.
-- Called  by Claim.locked, before claim.sql or take.sql in one round trip.
SELECT set_config('postroom_claim.held', pg_try_advisory_xact_lock($1::bigint)::text, true);
