-- Have the statements after it find what they look for by its index, in its order,
-- and stop at their LIMIT. From statistics of a table that was nearly empty the server
-- would read all of it; what is off counts as so dear that it would compile the plan.
-- A look that takes long is given up: it is never to be what ails the database.
--
-- Locks   none.
-- Index   none.
-- Called  by Read, at the start of each transaction.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('max_parallel_workers_per_gather', '0', true), set_config('jit', 'off', true),
       set_config('plan_cache_mode', 'force_custom_plan', true), set_config('statement_timeout', '10s', true);
