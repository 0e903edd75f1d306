-- Set up a connection that only a relay's term uses.
--
-- Sequential scans are off, because a plan that was made while the log was empty would later scan
-- and sort the log. Compiling a plan (jit), or starting workers for it, takes longer than any
-- statement of the relay. So both are off. If one statement has inserted most of the log, the
-- planner expects many late rows and would start workers. Workers made a pass 6 ms slower.
--
-- Locks   none.
-- Index   none.
-- Called  by Log.Lead.

-- Without this search path, a role that may create in a schema of the path could have its function
-- run by the relay.
--guard:the-relays-own-search-path remove
SET search_path = pg_catalog, pg_temp;

--guard:the-relays-own-plans remove
SET enable_seqscan = off;
SET jit = off;

-- For the statements that record, the server makes a new plan at each run: the best way to find the
-- first event of a key depends on how many events are held. It keeps the plans of the reader: see
-- reader.sql.
SET plan_cache_mode = force_custom_plan;
SET max_parallel_workers_per_gather = 0;

-- Settings that the role or the database has for other programs must not disturb the relay. The
-- first pass after an outage takes long, and a time limit would end it. At the isolation level
-- serializable, the relay's reads could make serializable transactions of producers fail. The relay
-- does not change default_transaction_read_only: some providers set it while a disk is nearly full.
--guard:the-relays-own-statement-timeout remove
SET statement_timeout = 0;
--guard:the-relays-own-lock-timeout remove
SET lock_timeout = 0;
SELECT set_config(name, '0', false)
FROM pg_settings
--guard:the-relays-own-idle-timeouts false
WHERE name IN ('idle_session_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout'); -- some versions of PostgreSQL do not have transaction_timeout
--guard:the-relays-own-isolation remove
SET default_transaction_isolation = 'read committed';

-- With this setting, statements fail if row-level security is enabled while the relay leads.
-- Without it, they would leave out rows, and these rows would count as published.
--guard:no-read-under-row-security remove
SET row_security = off;
SET datestyle = ISO;
SET bytea_output = hex;

-- If a crash of the server undoes a recording, the relay publishes the events of the recording once
-- more and records them again. So a recording need not wait for the disk. It does not slow down the
-- commits of producers, which must wait for the disk. Only the commit that takes the lease waits:
-- see lead.sql.
SET synchronous_commit = off;
SET application_name = 'postroom relay';
