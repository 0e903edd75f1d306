-- What happened to instance $2 of saga $1.
--
-- Locks   none.
-- Index   the primary key.
-- Order   as it happened.
-- Called  by Store.Show.
SELECT at, revision, step, direction, what, coalesce(type, ''), coalesce(event_id, '')
FROM postroom.saga_step
WHERE name = $1 AND key = $2
ORDER BY id
