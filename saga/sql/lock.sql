-- Locks instance $2 of saga $1. The statement reads the time after it has the lock.
--
-- Locks   the row, until the transaction ends.
-- Index   the primary key.
-- Called  by table.lock.
SELECT clock_timestamp(), s.*
FROM (
    SELECT owner, version, state, step, run, revision, data, correlation_id, causation_id, undo_id, waits_since, deadline, alarm_at
    FROM postroom.saga WHERE name = $1 AND key = $2
    --guard:a-saga-is-locked remove
    FOR UPDATE
) s
