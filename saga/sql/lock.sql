-- Locks instance $2 of saga $1. There is always one row: with the identity of this Postroom, the
-- time after the lock was taken, and NULLs if there is no such instance.
--
-- Locks   the row, until the transaction ends.
-- Index   the primary key.
-- Called  by table.lock.
SELECT i.id, clock_timestamp(), s.version, s.state, s.step, s.run, s.revision, s.data, s.correlation_id, s.causation_id,
       s.waits_since, s.deadline, s.alarm_at, s.note
FROM postroom.instance i
LEFT JOIN LATERAL (
    SELECT * FROM postroom.saga WHERE name = $1 AND key = $2 FOR UPDATE
) s ON true
