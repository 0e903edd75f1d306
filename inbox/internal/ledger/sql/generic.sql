-- Make the next statement use its stored plan. Otherwise the server would plan it again for each
-- list of values, which takes longer than running it.
--
-- Locks   none.
-- Index   none.
-- Called  by DB.Store, before hold.sql and in its transaction.
SELECT set_config('plan_cache_mode', 'force_generic_plan', true);
