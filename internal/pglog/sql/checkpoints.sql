-- The checkpoints of stream $1, the newest first.
--
-- Locks   none.
-- Index   relay_checkpoint_pkey (id): there are few.
-- Order   by id, descending.
-- Called  by Log.Checkpoints.
SELECT id, streams -> $1::text
FROM postroom.relay_checkpoint
WHERE streams ? $1::text
ORDER BY id DESC;
