-- Reset the counts of replay $1: only events that end from now on decide whether replay $1 stops.
--
-- Locks   its row.
-- Index   job_pkey (id).
-- Called  by Store.ResumeReplay, after replay_lock.sql.
UPDATE postroom.job SET before_succeeded = succeeded, before_failed = failed WHERE id = $1;
