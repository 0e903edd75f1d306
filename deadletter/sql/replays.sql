-- The replay with id $1. If $1 is NULL: the newest $2 replays with an id below $3, or with any id
-- if $3 is NULL. If $4 is true, only running replays.
--
-- Locks   none.
-- Index   replay_pkey (id), replay_running (id).
-- Called  by Store.GetReplay and Store.Replays.
SELECT id, created_at, actor, reason, filter, attempts, rate, canary, stop_at, as_new, state, phase, items, released, succeeded, failed,
       passed_over, stepped_at, ended_at, extract(epoch FROM clock_timestamp() - coalesce(stepped_at, created_at))::float8 AS rests
FROM postroom.replay
WHERE ($1::bigint IS NULL OR id = $1) AND ($3::bigint IS NULL OR id < $3) AND (NOT $4 OR state = 'running')
ORDER BY id DESC
LIMIT $2;
