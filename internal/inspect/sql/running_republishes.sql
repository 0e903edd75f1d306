-- The running republishes, in the order in which the relay carries them out.
--
-- Locks   none.
-- Index   republish_running (id).
-- Order   by id.
-- Called  by Inspector.Status.
SELECT id, kind, actor, created_at, rate, events, published, skipped, held
FROM postroom.republish
WHERE state = 'running'
ORDER BY id
LIMIT 100;
