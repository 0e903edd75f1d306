-- The running replays that no process has continued for longer than $1.
--
-- Locks   none.
-- Index   job_running (id).
-- Order   by id.
-- Called  by checkReplays.
SELECT id, actor, items, released, extract(epoch FROM now() - coalesce(stepped_at, created_at))::float8 AS idle
FROM postroom.job
WHERE state = 'running' AND coalesce(stepped_at, created_at) < now() - $1::interval
ORDER BY id
LIMIT 100;
