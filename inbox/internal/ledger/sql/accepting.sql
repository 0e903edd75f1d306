-- Before accept.sql, in its transaction: let it use its stored plan, as generic.sql does, and wait for
-- locks for at most $1, with its unit: the events of many callers are in one statement, and one that
-- waits for another transaction with the same event must not hold up the others for long.
--
-- Locks   none.
-- Index   none.
-- Called  by Accepts.store.
SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('lock_timeout', $1::text, true);
