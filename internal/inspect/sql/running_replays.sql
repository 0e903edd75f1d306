-- The running replays, and how long ago a process made the last step of each.
--
-- Locks   none.
-- Index   replay_running (id).
-- Order   by id.
-- Called  by Inspector.Status.
SELECT id, actor, created_at, phase, items, released, succeeded, failed, passed_over, stepped_at,
       greatest(extract(epoch FROM now() - coalesce(stepped_at, created_at)), 0)::float8 AS idle
FROM postroom.replay
WHERE state = 'running'
ORDER BY id
LIMIT 100;
