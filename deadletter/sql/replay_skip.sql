-- Leave out the events that replay $1 has not released. It returns how many there are.
--
-- Locks   the items; the replay is locked before.
-- Index   job_item_next (job, n).
-- Called  by replayStep.stopReleasing.
WITH left_out AS (
    UPDATE postroom.job_item SET outcome = 'withdrawn', ended_at = now()
    WHERE job = $1 AND outcome IS NULL AND released_at IS NULL
    RETURNING 1
)
SELECT count(*) FROM left_out;
