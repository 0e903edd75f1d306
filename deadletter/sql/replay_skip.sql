-- Skip the events that replay $1 has not released. The statement returns how many events it
-- skipped.
--
-- Locks   the rows of replay_event. The caller has already locked the replay.
-- Index   replay_event_next (replay, n).
-- Called  by replayStep.stopReleasing.
WITH left_out AS (
    UPDATE postroom.replay_event SET outcome = 'withdrawn', ended_at = now()
    WHERE replay = $1 AND outcome IS NULL AND released_at IS NULL
    RETURNING 1
)
SELECT count(*) FROM left_out;
