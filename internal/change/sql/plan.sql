-- Have the statements after it planned for their values. A plan that was made while
-- little was held, or discarded, would read all that is now.
--
-- Locks   none.
-- Index   none.
-- Called  by Tables.InTxOnce, before all else in its transaction.
SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true);
