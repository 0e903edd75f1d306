-- Reset the counts of replay $1, which is resumed with $2 of the events that it had skipped: only
-- events that end from now on decide whether the replay stops, and it has a new canary.
--
-- Locks   its row.
-- Index   replay_pkey (id).
-- Called  by Store.ResumeReplay, after replay_lock.sql.
UPDATE postroom.replay SET before_succeeded = succeeded, before_failed = failed, before_passed_over = passed_over - $2 WHERE id = $1;
