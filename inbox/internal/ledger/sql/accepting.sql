-- Prepare the transaction of accept.sql. accept.sql then uses its stored plan, as generic.sql
-- does for other statements, and waits for locks for at most $1 (a number with its unit). One
-- accept.sql has the events of many callers. If one event waits for another transaction with the
-- same event, the other events must not wait for long.
--
-- Locks   none.
-- Index   none.
-- Called  by Accepts.store.
SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('lock_timeout', $1::text, true);
