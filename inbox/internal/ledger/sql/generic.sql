-- Have the statement after it use the plan that is kept: the server would plan it
-- anew for each list of values, which takes longer than what it does.
--
-- Locks   none.
-- Index   none.
-- Called  by DB.Store, before hold.sql and in its transaction.
SELECT set_config('plan_cache_mode', 'force_generic_plan', true);
