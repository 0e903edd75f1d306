-- Make the server plan each later statement of the transaction for the statement's values. A plan
-- that the server made while held or archive was small would read the complete table. Also limit how
-- long the transaction may have its locks while its program does nothing, for instance because the
-- computer of an operator sleeps: the relay and the handlers would wait for them. $1 is this limit,
-- with its unit; NULL: the transaction's own applies.
--
-- Locks   none.
-- Index   none.
-- Called  by Tables.inTx, as the first statement of its transaction.
SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true),
       --guard:an-operator-whose-program-stalls-stops-no-relay = coalesce($1::text, '')
       set_config('idle_in_transaction_session_timeout', coalesce($1::text, current_setting('idle_in_transaction_session_timeout')), true);
