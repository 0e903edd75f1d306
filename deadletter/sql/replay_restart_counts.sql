-- Have replay $1 judged by what ends from now on.
--
-- Locks   its row.
-- Index   job_pkey (id).
-- Called  by Store.ResumeReplay, after replay_lock.sql.
UPDATE postroom.job SET before_succeeded = succeeded, before_failed = failed WHERE id = $1;
