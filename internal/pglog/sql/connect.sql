-- Set up a connection that only a relay's term uses.
--
-- A plan that was made while the log was empty would scan and sort it later.
-- Compiling a plan, or starting workers for it, takes longer than any statement
-- of the relay: in a log that one statement loaded the planner takes the late
-- rows for many, and workers made a pass 6 ms slower.
--
-- Locks   none.
-- Index   none.
-- Called  by Log.Lead.
SET enable_seqscan = off;
SET jit = off;

-- What records is planned each time: how it finds the head of a key depends on how
-- much is held by then. The reader's plans are kept; see reader.sql.
SET plan_cache_mode = force_custom_plan;
SET max_parallel_workers_per_gather = 0;

-- What a role or a database sets for others must not stop or mislead the relay:
-- the first pass after an outage takes long, and an isolation level above read
-- committed would make producers fail.
SET statement_timeout = 0;
SET lock_timeout = 0;
SELECT set_config(name, '0', false)
FROM pg_settings
WHERE name IN ('idle_session_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout'); -- the last is not in every version
SET default_transaction_isolation = 'read committed';
SET default_transaction_read_only = off;
SET datestyle = ISO;
SET bytea_output = hex;

-- A recording that a crash of the server undoes is made again: what it said was
-- published is then published once more. So it need not wait for the disk, and
-- takes nothing from the producers, whose commits do. Taking the lease waits.
SET synchronous_commit = off;
SET application_name = 'postroom relay';
