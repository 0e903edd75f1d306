-- The events that replay $1 releases next: $2 events, and all further events that have the same key
-- as the last of these.
--
-- Locks   none. The caller has already locked the replay.
-- Index   replay_event_next (replay, n).
-- Called  by replayStep.release.
WITH next AS (
    SELECT through FROM postroom.replay_event
    WHERE replay = $1 AND outcome IS NULL AND released_at IS NULL
    ORDER BY n
    LIMIT $2
)
SELECT held FROM postroom.replay_event
WHERE replay = $1 AND outcome IS NULL AND released_at IS NULL AND n <= (SELECT max(through) FROM next)
ORDER BY n;
