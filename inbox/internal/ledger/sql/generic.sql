-- Make the next statement use its stored plan. Otherwise the server would plan the statement again
-- for each list of values, which takes longer than the statement itself.
--
-- Locks   none.
-- Index   none.
-- Called  by DB.Store, before hold.sql and in its transaction.
SELECT set_config('plan_cache_mode', 'force_generic_plan', true);
