-- Set up a connection that only a relay's term uses.
--
-- A plan that was made while the log was empty would scan and sort it later.
-- Compiling a plan, or starting workers for it, takes longer than any statement
-- of the relay: in a log that one statement loaded the planner takes the late
-- rows for many, and workers made a pass 6 ms slower.
--
-- Locks   none.
-- Index   none.
-- Called  by Log.connect.
SET enable_seqscan = off;
SET jit = off;
SET max_parallel_workers_per_gather = 0;
SET application_name = 'postroom relay';
