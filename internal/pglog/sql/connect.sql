-- Set up a connection that only a relay's term uses.
--
-- A plan that was made while the log was empty would later scan and sort the log. Compiling a
-- plan, or starting workers for it, takes longer than any statement of the relay. After one
-- statement loaded the log, the planner expects many late rows and would use workers, which made a
-- pass 6 ms slower.
--
-- Locks   none.
-- Index   none.
-- Called  by Log.Lead.
SET enable_seqscan = off;
SET jit = off;

-- Statements that record are planned each time: the best way to find the first event of a
-- key depends on how much is held. The reader's plans are kept; see reader.sql.
SET plan_cache_mode = force_custom_plan;
SET max_parallel_workers_per_gather = 0;

-- Settings of the role or the database for other programs must not disturb the relay: the
-- first pass after an outage takes long, and an isolation level above read committed would
-- make producers fail.
SET statement_timeout = 0;
SET lock_timeout = 0;
SELECT set_config(name, '0', false)
FROM pg_settings
WHERE name IN ('idle_session_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout'); -- some versions do not have the last one
SET default_transaction_isolation = 'read committed';
SET default_transaction_read_only = off;

-- If row-level security is enabled while the relay leads, statements fail. Otherwise they would
-- leave out rows, and these rows would count as published.
SET row_security = off;
SET datestyle = ISO;
SET bytea_output = hex;

-- If a crash of the server undoes a recording, the relay publishes those events once more
-- and records them again. So a recording need not wait for the disk. It does not slow down the
-- commits of producers, which wait for the disk. The commit that takes the lease waits, too.
SET synchronous_commit = off;
SET application_name = 'postroom relay';
