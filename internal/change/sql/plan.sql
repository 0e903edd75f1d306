-- Make the server plan each later statement of the transaction for the statement's values. A plan
-- that the server made while held or archive was small would read the complete table.
--
-- Locks   none.
-- Index   none.
-- Called  by Tables.InTxOnce, as the first statement of its transaction.
SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true);
