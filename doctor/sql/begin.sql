-- Set up a read-only transaction. No statement may take long or wait long for a lock, and the
-- planner may not choose to read a large table from end to end.
--
-- Locks   none.
-- Index   none.
-- Called  by examination.read, first in each of its transactions.
SELECT set_config('statement_timeout', '5s', true), set_config('lock_timeout', '1s', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true),
       set_config('max_parallel_workers_per_gather', '0', true);
