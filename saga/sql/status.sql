-- The state of instance $2 of saga $1.
--
-- Locks   none.
-- Index   the primary key.
-- Called  by Saga.status.
SELECT version, state, step, revision, data, deadline, started_at, ended_at
FROM postroom.saga
WHERE name = $1 AND key = $2
