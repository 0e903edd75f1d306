-- Make the next statement use its stored plan. The server would otherwise plan it anew for
-- each list of values, which takes longer than to run it.
--
-- Locks   none.
-- Index   none.
-- Called  by DB.Store, before hold.sql and in its transaction.
SELECT set_config('plan_cache_mode', 'force_generic_plan', true);
