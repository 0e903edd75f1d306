-- Make the later statements of the transaction find rows by an index, in its order, and stop at
-- their LIMIT. Otherwise, with statistics from a time when a table was nearly empty, the server
-- would read the complete table. JIT is off: the server compiles a plan if it estimates a high
-- cost, and up to version 17 it estimates a very high cost for a disabled kind of scan. The server
-- cancels a statement after 10 seconds, so that no statement harms the database.
--
-- Locks   none.
-- Index   none.
-- Called  by Read, at the start of each transaction.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('max_parallel_workers_per_gather', '0', true), set_config('jit', 'off', true),
       set_config('plan_cache_mode', 'force_custom_plan', true), set_config('statement_timeout', '10s', true);
