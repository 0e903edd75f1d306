-- Skip the events that replay $1 has not released. The statement returns how many events it
-- skipped.
--
-- Locks   the rows of job_item. The caller has already locked the replay.
-- Index   job_item_next (job, n).
-- Called  by replayStep.stopReleasing.
WITH left_out AS (
    UPDATE postroom.job_item SET outcome = 'withdrawn', ended_at = now()
    WHERE job = $1 AND outcome IS NULL AND released_at IS NULL
    RETURNING 1
)
SELECT count(*) FROM left_out;
