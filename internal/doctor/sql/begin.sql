-- Set up a read-only transaction. A statement may take at most 5 seconds and wait at most a second
-- for a lock. The planner must not choose to read a large table from end to end.
--
-- Locks   none.
-- Index   none.
-- Called  by Doctor.read, as the first statement of each transaction.
SELECT set_config('statement_timeout', '5s', true), set_config('lock_timeout', '1s', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true),
       set_config('max_parallel_workers_per_gather', '0', true);
